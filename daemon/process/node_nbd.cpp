// How NBD clients get to the node: where it listens, and who is let in.
#include <filesystem>

#include "daemon/configuration/memory_budget.hpp"
#include "daemon/configuration/text.hpp"
#include "daemon/process/explained.hpp"
#include "daemon/process/nbd_exports.hpp"
#include "daemon/process/node.hpp"
#include "frontends/nbd/tls_credentials.hpp"
#include "utils/host_name.hpp"
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

const char* name_of(nbd::TlsMode mode) {
    switch (mode) {
        case nbd::TlsMode::off: return "off";
        case nbd::TlsMode::on: return "on";
        case nbd::TlsMode::require: return "required";
    }
    return "";
}

}  // namespace

Result<> Node::start_nbd() {
    nbd_ = std::make_unique<nbd::Server>(shards_->loops(), *catalog_, requests_bytes(configuration_.memory_bytes),
                                         nbd_settings(configuration_), cache_->pool().arena().landing(),
                                         cache_->pool().arena().clients());
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
    }
    if (!listens_on_unix && !configuration_.nbd_unix.empty()) {
        std::error_code ignored;  // listening says what is wrong, if anything is
        std::filesystem::create_directories(std::filesystem::path(configuration_.nbd_unix).parent_path(), ignored);
        TRY_VOID(explained("nbd.unix " + configuration_.nbd_unix, nbd_->listen_unix(configuration_.nbd_unix)));
    }
    if (const std::optional<Address>& address = configuration_.nbd_tcp; address && !listens_on_tcp)
        TRY_VOID(explained("nbd.tcp " + format_address(*address), nbd_->listen_tcp(address->host, address->port)));
    if (!configuration_.nbd_unix.empty()) log::info("nbd: serves on {}", log::printable(configuration_.nbd_unix));
    const bool has_unused_keys =
        configuration_.nbd_tls == nbd::TlsMode::off &&
        (!configuration_.nbd_tls_files.psk_file.empty() || configuration_.nbd_tls_files.verify_peer);
    if (configuration_.nbd_tcp && has_unused_keys)
        log::warning(
            "nbd.tls is off, though tls_psk_file or tls_verify_peer is set: everybody who reaches {}{} is let in, "
            "and nothing is encrypted; set tls = \"on\" or \"require\"",
            format_address(*configuration_.nbd_tcp), configuration_.nbd_networks.empty() ? "" : " from nbd.networks");
    if (configuration_.nbd_tcp)
        log::info("nbd: serves on {}, TLS {}", format_address(*configuration_.nbd_tcp),
                  name_of(configuration_.nbd_tls));
    else if (configuration_.nbd_tls != nbd::TlsMode::off || !configuration_.nbd_networks.empty() ||
             !configuration_.nbd_access.empty())
        log::warning("nbd: tls, networks and access are about TCP, on which this host does not serve; set nbd.tcp");
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
    if (credentials) say_who_is_not_let_in(*credentials);
    nbd::Admission admission{.networks = configuration_.nbd_networks,
                             .tls = configuration_.nbd_tls,
                             .credentials = std::move(credentials),
                             .access = {}};
    for (const auto& [volume, identities] : configuration_.nbd_access) admission.access.set(volume, identities);
    return admission;
}

// What would only be noticed when a client is refused.
void Node::say_who_is_not_let_in(const nbd::TlsCredentials& credentials) const {
    const std::string& directory = configuration_.nbd_tls_files.directory;
    if (credentials.expiry() && *credentials.expiry() <= nbd::TlsCredentials::Clock::now())
        log::warning("nbd.tls: {}/server-cert.pem has expired, and clients will refuse it; renew it, then reload tarnd",
                     directory);
    if (!credentials.knows_revoked())
        log::warning(
            "nbd.tls: {}/ca-crl.pem has expired, and no client is let in by a certificate; put the authority's newest "
            "list there, then reload tarnd",
            directory);
    for (const std::string& nobody : nbd_identities_of_nobody(configuration_, credentials)) log::warning("{}", nobody);
    if (!configuration_.nbd_tcp || !credentials.has_certificate()) return;
    const std::string host = nbd_host_for_clients(configuration_, machine_name());
    if (!credentials.is_certified(host))
        log::info(
            "nbd.tls: {}/server-cert.pem is not for {}, as the URIs of tarn show have it: clients that use those "
            "refuse it; your authority can make one that is, with its other names",
            directory, host);
}

// Once the catalog can be read: a line of the configuration about a volume that is not there protects none.
Task<> Node::warn_of_missing_volumes() {
    if (configuration_.nbd_read_only.empty() && configuration_.nbd_access.empty()) co_return;
    while (!cache_->abandoned()) {
        const uint64_t seen = cache_->membership().changed().count();
        const Result<std::vector<VolumeEntry>> volumes = co_await catalog_->names();
        if (volumes) {
            std::vector<std::string> names;
            for (const VolumeEntry& volume : *volumes) names.push_back(volume.name);
            for (const std::string& stranger : nbd_names_of_no_volume(configuration_, names))
                log::warning("{}: there is no volume of that name; tarn list names those that are there", stranger);
            co_return;
        }
        if (volumes.error().code != Errc::unavailable) co_return;
        co_await cache_->membership().changed().next(seen);  // the catalog is with a host that is away
    }
}

// The files of TLS: who connects from now on meets what they hold. What cannot be used changes nothing.
Task<> Node::read_anew() {
    log::info("a reload reads certificates and keys anew; changes of the configuration need a restart");
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
