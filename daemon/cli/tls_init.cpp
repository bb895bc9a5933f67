#include "daemon/cli/tls_init.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ranges>
#include <set>

#include "daemon/cli/program.hpp"
#include "utils/host_name.hpp"

namespace tarn {

namespace {

constexpr size_t name_size_max = 253;
constexpr const char* install_hint = "apt install gnutls-bin";

bool is_address(const std::string& host) {
    in6_addr bytes{};
    return ::inet_pton(AF_INET, host.c_str(), &bytes) == 1 || ::inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

// It becomes a directory's name and a line of a template.
bool is_host(const std::string& host) {
    if (is_address(host)) return true;
    const auto is_allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
               c == '.';
    };
    return !host.empty() && host.size() <= name_size_max && host[0] != '-' && host[0] != '.' &&
           std::ranges::all_of(host, is_allowed);
}

// The directory in the making; gone unless it is kept.
class Draft {
  public:
    explicit Draft(std::filesystem::path path) : path_(std::move(path)) {}
    Draft(const Draft&) = delete;
    ~Draft() {
        std::error_code ignored;
        if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    }
    const std::filesystem::path& path() const { return path_; }
    // Under its name, where there is nothing, or an empty directory.
    std::error_code keep_as(const std::filesystem::path& name) {
        std::error_code problem;
        std::filesystem::rename(path_, name, problem);
        if (!problem) path_.clear();
        return problem;
    }

  private:
    std::filesystem::path path_;
};

// What it says goes nowhere unless it fails.
Outcome<> certtool(std::vector<std::string> words) {
    words.insert(words.begin(), "certtool");
    const ProgramEnd end = run_program(std::move(words));
    if (end.error == ENOENT)
        return refuse(Exit::not_found, "certtool, which makes certificates, is not installed", install_hint);
    if (end.error != 0)
        return refuse(Exit::failed, fmt::format("certtool cannot be started: {}", std::strerror(end.error)));
    if (end.succeeded()) return {};
    return refuse(Exit::failed, fmt::format("certtool failed: {}", end.last_line()));
}

Outcome<> make_key(const std::filesystem::path& path) {
    return certtool({"--generate-privkey", "--outfile", path.string()});
}

// The lines say what the certificate is good for.
Outcome<> make_certificate(const std::filesystem::path& directory, const std::string& lines,
                           std::vector<std::string> words) {
    const std::filesystem::path path = directory / "template";
    if (std::ofstream file(path); !(file << lines << std::flush))
        return refuse(Exit::failed, fmt::format("{}: {}", path.string(), std::strerror(errno)));
    words.insert(words.end(), {"--template", path.string()});
    Outcome<> made = certtool(std::move(words));
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    return made;
}

Outcome<> make_authority(const std::filesystem::path& draft) {
    TRY_VOID(make_key(draft / "ca-key.pem"));
    return make_certificate(
        draft, "cn = \"tarn CA\"\nca\ncert_signing_key\ncrl_signing_key\n",
        {"--generate-self-signed", "--load-privkey", draft / "ca-key.pem", "--outfile", draft / "ca-cert.pem"});
}

// In a directory of its own, with all that its owner needs.
Outcome<> make_pair(const std::filesystem::path& draft, const std::filesystem::path& directory, const std::string& who,
                    const std::string& lines) {
    std::error_code problem;
    std::filesystem::create_directories(directory, problem);
    if (!problem) std::filesystem::permissions(directory, std::filesystem::perms(0700), problem);
    if (!problem) std::filesystem::copy_file(draft / "ca-cert.pem", directory / "ca-cert.pem", problem);
    if (problem) return refuse(Exit::failed, fmt::format("{}: {}", directory.string(), problem.message()));
    const std::filesystem::path key = directory / (who + "-key.pem");
    TRY_VOID(make_key(key));
    return make_certificate(
        draft, lines,
        {"--generate-certificate", "--load-ca-certificate", draft / "ca-cert.pem", "--load-ca-privkey",
         draft / "ca-key.pem", "--load-privkey", key, "--outfile", directory / (who + "-cert.pem")});
}

// The names by which clients call it, at least one; the first is that of its directory.
using HostNames = std::vector<std::string>;

HostNames names_in(const std::string& text) {
    HostNames names;
    for (const auto part : std::views::split(text, ',')) names.emplace_back(part.begin(), part.end());
    if (names.empty()) names.emplace_back();  // an empty text has no part
    return names;
}

Outcome<> make_all(const std::filesystem::path& draft, const std::vector<HostNames>& hosts) {
    TRY_VOID(make_authority(draft));
    for (const HostNames& names : hosts) {
        std::string lines = fmt::format("cn = \"{}\"\n", names.front());
        for (const std::string& name : names)
            lines += fmt::format("{} = \"{}\"\n", is_address(name) ? "ip_address" : "dns_name", name);
        TRY_VOID(make_pair(draft, draft / "hosts" / names.front(), "server",
                           lines + "tls_www_server\nsigning_key\nencryption_key\n"));
    }
    return make_pair(draft, draft / "client", "client", "cn = \"client\"\ntls_www_client\nsigning_key\n");
}

Json next_steps(const std::filesystem::path& directory, const std::vector<HostNames>& hosts) {
    Json next = Json::array();
    for (const HostNames& names : hosts)
        next.push_back(fmt::format("on {}: copy the files of {} to /etc/tarn/tls, keys with mode 0600", names.front(),
                                   (directory / "hosts" / names.front()).string()));
    next.push_back(
        R"(in [nbd] of the tarn.toml of each host: tcp = "ADDRESS:10809", tls = "require", tls_verify_peer = true; )"
        "restart tarnd");
    next.push_back(fmt::format(
        "on clients: copy the files of {} to ~/.pki/libnbd, for root to /etc/pki/libnbd, where libnbd looks",
        (directory / "client").string()));
    next.push_back(fmt::format("keep {}: whoever has it can make himself a certificate, and you need it to make more",
                               (directory / "ca-key.pem").string()));
    return next;
}

}  // namespace

Outcome<Json> make_certificates(const TlsInitOptions& options) {
    std::vector<HostNames> hosts;
    for (const std::string& text : options.hosts) hosts.push_back(names_in(text));
    if (hosts.empty()) hosts.push_back({machine_name()});
    std::set<std::string> seen;
    for (const std::string& name : std::views::join(hosts)) {
        if (name.empty())
            return refuse(Exit::usage, "--host: a name in it is empty; names are given with commas between");
        if (!is_host(name))
            return refuse(Exit::usage, fmt::format("--host {}: neither a host's name nor an address", name));
        if (!seen.insert(name).second) return refuse(Exit::usage, fmt::format("--host {}: it is given twice", name));
    }
    std::filesystem::path directory = std::filesystem::absolute(options.directory).lexically_normal();
    if (!directory.has_filename()) directory = directory.parent_path();
    std::error_code problem;
    const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(directory, problem));
    if (is_there &&
        (!std::filesystem::is_directory(directory, problem) || !std::filesystem::is_empty(directory, problem)))
        return std::unexpected(Failure{.exit = Exit::busy,
                                       .cause = "it is there already, and nothing in it is overwritten",
                                       .hint = "another directory",
                                       .code = "exists"});
    std::string pattern = directory.string() + ".XXXXXX";
    if (!::mkdtemp(pattern.data()))
        return refuse(
            errno == EACCES   ? Exit::permission
            : errno == ENOENT ? Exit::not_found
                              : Exit::failed,
            fmt::format("{}: nothing can be made there: {}", directory.parent_path().string(), std::strerror(errno)));
    Draft draft(pattern);
    TRY_VOID(make_all(draft.path(), hosts));
    if (const std::error_code error = draft.keep_as(directory))
        return refuse(Exit::failed, fmt::format("{}: {}", directory.string(), error.message()));
    Json first_names = Json::array();
    for (const HostNames& names : hosts) first_names.push_back(names.front());
    return Json{{"directory", directory.string()}, {"hosts", first_names}, {"next", next_steps(directory, hosts)}};
}

}  // namespace tarn
