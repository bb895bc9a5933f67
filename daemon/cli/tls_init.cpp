#include "daemon/cli/tls_init.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "daemon/cli/init.hpp"
#include "daemon/cli/program.hpp"

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
    std::ofstream(path) << lines;
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
    std::filesystem::permissions(directory, std::filesystem::perms(0700), problem);
    std::filesystem::copy_file(draft / "ca-cert.pem", directory / "ca-cert.pem", problem);
    if (problem) return refuse(Exit::failed, fmt::format("{}: {}", directory.string(), problem.message()));
    const std::filesystem::path key = directory / (who + "-key.pem");
    TRY_VOID(make_key(key));
    return make_certificate(
        draft, lines,
        {"--generate-certificate", "--load-ca-certificate", draft / "ca-cert.pem", "--load-ca-privkey",
         draft / "ca-key.pem", "--load-privkey", key, "--outfile", directory / (who + "-cert.pem")});
}

Outcome<> make_all(const std::filesystem::path& draft, const std::vector<std::string>& hosts) {
    TRY_VOID(make_authority(draft));
    for (const std::string& host : hosts) {
        const std::string lines =
            fmt::format("cn = \"{0}\"\n{1} = \"{0}\"\ntls_www_server\nsigning_key\nencryption_key\n", host,
                        is_address(host) ? "ip_address" : "dns_name");
        TRY_VOID(make_pair(draft, draft / "hosts" / host, "server", lines));
    }
    return make_pair(draft, draft / "client", "client", "cn = \"client\"\ntls_www_client\nsigning_key\n");
}

Json next_steps(const std::filesystem::path& directory, const std::vector<std::string>& hosts) {
    Json next = Json::array();
    for (const std::string& host : hosts)
        next.push_back(fmt::format("on {}: copy the files of {} to /etc/tarn/tls, keys with mode 0600", host,
                                   (directory / "hosts" / host).string()));
    next.push_back(
        R"(in [nbd] of its tarn.toml: tcp = "ADDRESS:10809", tls = "require", tls_verify_peer = true; restart tarnd)");
    next.push_back(fmt::format(
        "on clients: copy the files of {} to ~/.pki/libnbd, for root to /etc/pki/libnbd, where libnbd looks",
        (directory / "client").string()));
    next.push_back(fmt::format("keep {}: whoever has it can make himself a certificate, and you need it to make more",
                               (directory / "ca-key.pem").string()));
    return next;
}

}  // namespace

Outcome<Json> make_certificates(const TlsInitOptions& options) {
    std::vector<std::string> hosts = options.hosts;
    if (hosts.empty()) hosts.push_back(own_host_name());
    for (const std::string& host : hosts)
        if (!is_host(host))
            return refuse(Exit::usage, fmt::format("--host {}: neither a host's name nor an address", host));
    if (std::set<std::string>(hosts.begin(), hosts.end()).size() != hosts.size())
        return refuse(Exit::usage, "a --host is given twice");
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
        return refuse(errno == EACCES   ? Exit::permission
                      : errno == ENOENT ? Exit::not_found
                                        : Exit::failed,
                      fmt::format("{}: {}", directory.parent_path().string(), std::strerror(errno)));
    Draft draft(pattern);
    TRY_VOID(make_all(draft.path(), hosts));
    if (const std::error_code error = draft.keep_as(directory))
        return refuse(Exit::failed, fmt::format("{}: {}", directory.string(), error.message()));
    return Json{{"directory", directory.string()}, {"hosts", hosts}, {"next", next_steps(directory, hosts)}};
}

}  // namespace tarn
