#include "daemon/process/nbd_exports.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/control/http_request.hpp"
#include "utils/printable.hpp"

namespace tarn {

namespace {

bool has(std::span<const std::string> names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
}

}  // namespace

std::string nbd_host_for_clients(const Configuration& configuration, const std::string& machine_name) {
    const std::string& host = configuration.nbd_tcp->host;
    if (host != "0.0.0.0" && host != "::") return host;
    return configuration.peers.empty() ? machine_name : configuration.peers[configuration.host_id()].address.host;
}

Export nbd_export_of(const Configuration& configuration, const std::string& machine_name, const std::string& volume) {
    const std::string name = percent_encode(volume);
    Export result{.uris = {},
                  .over_tcp = configuration.nbd_tcp.has_value(),
                  .read_only = has(configuration.nbd_read_only, volume),
                  .clients = std::nullopt};
    if (const auto list = configuration.nbd_access.find(volume); list != configuration.nbd_access.end())
        result.clients = list->second;
    if (!configuration.nbd_unix.empty())
        result.uris.push_back("nbd+unix:///" + name + "?socket=" + percent_encode(configuration.nbd_unix));
    if (!configuration.nbd_tcp || (result.clients && result.clients->empty())) return result;
    const Address reachable{.host = nbd_host_for_clients(configuration, machine_name),
                            .port = configuration.nbd_tcp->port};
    const std::string rest = "://" + format_address(reachable) + "/" + name;
    if (configuration.nbd_tls != nbd::TlsMode::off) result.uris.push_back("nbds" + rest);
    if (configuration.nbd_tls != nbd::TlsMode::require && !result.clients) result.uris.push_back("nbd" + rest);
    return result;
}

std::vector<std::string> nbd_names_of_no_volume(const Configuration& configuration,
                                                std::span<const std::string> volumes) {
    std::vector<std::string> strangers;
    const auto look_at = [&](const char* key, const std::string& name) {
        if (!has(volumes, name)) strangers.push_back(fmt::format("{}: {}", key, printable(name)));
    };
    for (const std::string& name : configuration.nbd_read_only) look_at("nbd.read_only", name);
    for (const auto& [name, clients] : configuration.nbd_access) look_at("nbd.access", name);
    return strangers;
}

std::vector<std::string> nbd_identities_of_nobody(const Configuration& configuration,
                                                  const nbd::TlsCredentials& credentials) {
    std::vector<std::string> nobodies;
    for (const auto& [volume, identities] : configuration.nbd_access)
        for (const std::string& identity : identities) {
            constexpr std::string_view psk = "psk:";
            const bool has_key = identity.starts_with(psk);
            if (has_key ? credentials.key_of(identity.substr(psk.size())) != nullptr : credentials.has_certificate())
                continue;
            nobodies.push_back(fmt::format("nbd.access: {} of {}: {}", printable(identity), printable(volume),
                                           has_key ? "tls_psk_file has no key of that user"
                                                   : "without a server-cert.pem no client can prove that name"));
        }
    return nobodies;
}

}  // namespace tarn
