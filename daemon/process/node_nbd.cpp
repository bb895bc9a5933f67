// How NBD clients get to the node: where it listens, and who is let in.
#include <filesystem>

#include "daemon/configuration/memory_budget.hpp"
#include "daemon/configuration/text.hpp"
#include "daemon/process/explained.hpp"
#include "daemon/process/node.hpp"
#include "frontends/nbd/tls_credentials.hpp"
#include "utils/log.hpp"
#include "utils/on_thread.hpp"

namespace tarn {

namespace {

nbd::Settings nbd_settings(const Configuration& configuration) {
    nbd::Settings settings{.host = configuration.host,
                           .read_only = {configuration.nbd_read_only.begin(), configuration.nbd_read_only.end()}};
    settings.connections_max = configuration.nbd_connections_max.value_or(settings.connections_max);
    settings.handshakes_max = configuration.nbd_handshakes_max;
    settings.handshake_time_max = std::chrono::seconds(configuration.nbd_handshake_seconds);
    return settings;
}

}  // namespace

Result<> Node::start_nbd() {
    nbd_ = std::make_unique<nbd::Server>(shards_->loops(), *catalog_, requests_bytes(configuration_.memory_bytes),
                                         nbd_settings(configuration_), cache_->pool().arena().landing());
    if (configuration_.nbd_connections_max.value_or(0) > nbd_->connections_max())
        log::warning(
            "nbd.connections_max = {}: the limit of open files allows {}; raise it (ulimit -n, or LimitNOFILE= of the "
            "unit)",
            *configuration_.nbd_connections_max, nbd_->connections_max());
    TRY_VOID(admit_clients());
    TRY_VOID(listen_for_nbd());
    return {};
}

// On the service manager's sockets in place of our own, each of its kind. From then on the configuration says so.
Result<> Node::listen_for_nbd() {
    bool listens_on_unix = false;
    bool listens_on_tcp = false;
    for (UniqueFd& socket : passed_.take("nbd")) {
        TRY(const nbd::Server::Place place,
            explained("nbd: a socket of the service manager", nbd_->listen_on(std::move(socket))));
        (place.path.empty() ? listens_on_tcp : listens_on_unix) = true;
        if (place.path.empty())
            configuration_.nbd_tcp = Address{.host = place.host, .port = place.port};
        else
            configuration_.nbd_unix = place.path;
        log::info("nbd: listens on {}, a socket of the service manager",
                  place.path.empty() ? format_address(*configuration_.nbd_tcp) : log::printable(place.path));
    }
    if (!listens_on_unix && !configuration_.nbd_unix.empty()) {
        std::error_code ignored;  // listening says what is wrong, if anything is
        std::filesystem::create_directories(std::filesystem::path(configuration_.nbd_unix).parent_path(), ignored);
        TRY_VOID(explained("nbd.unix " + configuration_.nbd_unix, nbd_->listen_unix(configuration_.nbd_unix)));
    }
    if (const std::optional<Address>& address = configuration_.nbd_tcp; address && !listens_on_tcp)
        TRY_VOID(explained("nbd.tcp " + format_address(*address), nbd_->listen_tcp(address->host, address->port)));
    return {};
}

Result<> Node::admit_clients() {
    std::shared_ptr<const nbd::TlsCredentials> credentials;
    if (configuration_.nbd_tls != nbd::TlsMode::off) {
        auto loaded = nbd::TlsCredentials::load(configuration_.nbd_tls_files);
        if (!loaded) {
            log::error("nbd.tls: {}", loaded.error());
            return fail(Errc::invalid, 0, "nbd.tls");
        }
        credentials = std::move(*loaded);
    }
    nbd_->set_admission(admission(std::move(credentials)));
    return {};
}

nbd::Admission Node::admission(std::shared_ptr<const nbd::TlsCredentials> credentials) const {
    if (credentials && credentials->expiry() && *credentials->expiry() <= nbd::TlsCredentials::Clock::now())
        log::warning("nbd.tls: {}/server-cert.pem has expired, and clients will refuse it; renew it, then reload tarnd",
                     configuration_.nbd_tls_files.directory);
    nbd::Admission admission{.networks = configuration_.nbd_networks,
                             .tls = configuration_.nbd_tls,
                             .credentials = std::move(credentials),
                             .access = {}};
    for (const auto& [volume, identities] : configuration_.nbd_access) admission.access.set(volume, identities);
    return admission;
}

// The files of TLS: who connects from now on meets what they hold. What cannot be used changes nothing.
Task<> Node::read_anew() {
    if (configuration_.nbd_tls == nbd::TlsMode::off) co_return;
    const std::shared_ptr<const nbd::TlsCredentials> before = nbd_->admission().credentials;
    const auto loaded = co_await on_thread(
        [this, &before] { return nbd::TlsCredentials::load_anew(configuration_.nbd_tls_files, *before); });
    if (!loaded) {
        log::error("nbd.tls: the certificates and keys of before stay in use: {}", loaded.error());
        co_return;
    }
    nbd_->set_admission(admission(*loaded));
    log::info("nbd.tls: certificates and keys were read anew, for connections to come");
}

}  // namespace tarn
