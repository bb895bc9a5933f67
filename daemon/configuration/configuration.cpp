#include "daemon/configuration/configuration.hpp"

#include <fmt/format.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "frontends/volumes/volumes.hpp"
#include "utils/printable.hpp"
#include "utils/small_file.hpp"

namespace tarn {

namespace {

constexpr size_t key_file_size_max = 4096;
constexpr size_t key_size_bytes = 32;
constexpr size_t host_name_size_max = 63;

// Collects what check_configuration finds.
struct Findings {
    const std::string& file;
    std::vector<ConfigurationError> errors;
    void add(std::string key, std::string reason) {
        errors.push_back({.file = file, .key = std::move(key), .reason = std::move(reason)});
    }
};

void check_path(Findings& findings, const char* key, const std::string& path, size_t size_max) {
    if (path.empty()) return;
    if (path[0] != '/') findings.add(key, "not an absolute path");
    if (path.size() > size_max) findings.add(key, fmt::format("longer than {} bytes", size_max));
    if (path.contains('\0')) findings.add(key, "contains a zero byte");
}

bool valid_host_name(const std::string& name) {
    return !name.empty() && name.size() <= host_name_size_max && name[0] != '-' &&
           std::ranges::all_of(name, [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                      c == '_' || c == '.';
           });
}

void check_peers(Findings& findings, const Configuration& configuration) {
    constexpr const char* name_rule = "a host name has 1 to 63 letters, digits, '-', '_' and '.'";
    std::set<std::string> names;
    std::set<std::string> addresses;
    for (const Peer& peer : configuration.peers) {
        if (!valid_host_name(peer.name)) findings.add("peer.name", name_rule);
        if (!names.insert(peer.name).second)
            findings.add("peer.name", fmt::format("two peers are named \"{}\"", log::printable(peer.name)));
        if (!addresses.insert(format_address(peer.address)).second)
            findings.add("peer.address", fmt::format("two peers have {}", format_address(peer.address)));
    }
    if (configuration.peers.size() > hosts_max) findings.add("peer", fmt::format("more than {} hosts", hosts_max));
    if (configuration.host.empty())
        findings.add("host", "missing; a line such as host = \"a\"");
    else if (!valid_host_name(configuration.host))
        findings.add("host", name_rule);
    if (configuration.peers.empty()) return;
    if (!names.contains(configuration.host))
        findings.add("host", configuration.host + " is not the name of one of the peers");
    if (configuration.peers.size() > 1 && configuration.key_file.empty())
        findings.add("key_file", "missing; the hosts of a cluster need a key in common");
}

}  // namespace

HostId Configuration::host_id() const {
    for (size_t i = 0; i < peers.size(); ++i)
        if (peers[i].name == host) return static_cast<HostId>(i);
    return 0;
}

std::string ConfigurationError::describe() const {
    std::string text = file;
    if (line > 0) text += fmt::format(":{}:{}", line, column);
    if (!key.empty()) text += text.empty() ? key : ": " + key;
    return printable(text + ": " + reason);
}

std::vector<ConfigurationError> check_configuration(const Configuration& configuration, const std::string& file) {
    constexpr size_t socket_path_size_max = sizeof(sockaddr_un::sun_path) - 1;
    constexpr size_t path_size_max = 4095;
    Findings findings{.file = file, .errors = {}};
    if (configuration.store.empty()) findings.add("store", "missing; the path of a file or block device");
    check_path(findings, "store", configuration.store, path_size_max);
    check_path(findings, "key_file", configuration.key_file, path_size_max);
    check_path(findings, "control", configuration.control, socket_path_size_max);
    check_path(findings, "nbd.unix", configuration.nbd_unix, socket_path_size_max);
    for (const std::string& name : configuration.nbd_read_only)
        if (!valid_volume_name(name))
            findings.add("nbd.read_only", fmt::format("\"{}\" cannot be a volume's name", log::printable(name)));
    for (const auto& [name, identities] : configuration.nbd_access)
        if (!valid_volume_name(name))
            findings.add("nbd.access", fmt::format("\"{}\" cannot be a volume's name", log::printable(name)));
    check_path(findings, "nbd.tls_certificates", configuration.nbd_tls_files.directory, path_size_max);
    check_path(findings, "nbd.tls_psk_file", configuration.nbd_tls_files.psk_file, path_size_max);
    const bool names_clients =
        std::ranges::any_of(configuration.nbd_access, [](const auto& each) { return !each.second.empty(); });
    if (names_clients && configuration.nbd_tls == nbd::TlsMode::off)
        findings.add("nbd.access", "names clients by what they prove within TLS, which is off; set tls in [nbd]");
    for (const std::string& path : configuration.mount_points) {
        check_path(findings, "fuse.mount_points", path, path_size_max);
        if (path != std::filesystem::path(path).lexically_normal() || path.ends_with('/'))
            findings.add("fuse.mount_points", "write paths without \"//\", \".\", \"..\" and a slash at the end");
    }
    if (configuration.control.empty()) findings.add("control", "empty; tarn could not reach the daemon");
    if (!configuration.nbd_unix.empty() && configuration.nbd_unix == configuration.control)
        findings.add("nbd.unix", "the same path as control");
    if (configuration.cluster == Uuid{}) findings.add("cluster", "missing; tarn init draws one");
    if (configuration.memory_bytes < memory_size_min)
        findings.add("memory", fmt::format("{} is less than {}; a size such as \"4GiB\"",
                                           format_size(configuration.memory_bytes), format_size(memory_size_min)));
    if (configuration.memory_bytes > memory_size_max)
        findings.add("memory", fmt::format("more than {}", format_size(memory_size_max)));
    if (configuration.shards > shards_max) findings.add("shards", fmt::format("more than {}", shards_max));
    check_peers(findings, configuration);
    return findings.errors;
}

ConfigurationResult<Configuration> load_configuration(const std::string& file) {
    const auto refuse = [&](const char* key, const std::string& reason) {
        return std::unexpected(std::vector<ConfigurationError>{{.file = file, .key = key, .reason = reason}});
    };
    const Result<std::string> text = read_small_file(file, configuration_size_max);
    if (!text && text.error().code == Errc::not_found)
        return refuse("", "no such file; tarn init makes it and the store");
    if (!text) return refuse("", text.error().where);
    ConfigurationResult<Configuration> configuration = parse_configuration(*text, file);
    if (!configuration || configuration->key_file.empty()) return configuration;
    if (const auto key = load_key(configuration->key_file); !key)
        return refuse("key_file", fmt::format("{}: {}", log::printable(configuration->key_file), key.error().where));
    return configuration;
}

Result<std::vector<std::byte>> load_key(const std::string& path) {
    TRY(std::string text, read_secret_file(path, key_file_size_max));
    std::vector<std::byte> key;
    Result<std::vector<std::byte>> result = fail(Errc::invalid, 0, "not 64 hexadecimal digits");
    std::string_view digits = text;
    while (digits.ends_with('\n') || digits.ends_with('\r')) digits.remove_suffix(1);
    if (digits.size() == 2 * key_size_bytes) {
        for (size_t i = 0; i < digits.size(); i += 2)
            if (const auto byte = parse_hex(digits.substr(i, 2))) key.push_back(std::byte{*byte});
        if (key.size() == key_size_bytes) result = std::move(key);
    }
    ::explicit_bzero(text.data(), text.size());
    return result;
}

std::optional<Uuid> parse_uuid(std::string_view text) {
    if (text.size() != 36) return std::nullopt;
    Uuid uuid{};
    size_t count = 0;
    for (size_t i = 0; i < text.size();) {
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (text[i++] != '-') return std::nullopt;
            continue;
        }
        const auto byte = parse_hex(text.substr(i, 2));
        if (!byte) return std::nullopt;
        uuid[count++] = *byte;
        i += 2;
    }
    return uuid;
}

std::string format_uuid(const Uuid& uuid) {
    std::string text;
    for (size_t i = 0; i < uuid.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += fmt::format("{:02x}", uuid[i]);
    }
    return text;
}

}  // namespace tarn
