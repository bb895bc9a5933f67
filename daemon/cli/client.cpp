#include "daemon/cli/client.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include "daemon/configuration/configuration.hpp"
#include "utils/file_text.hpp"
#include "utils/small_file.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {

namespace {

// A daemon that was only just forked is not there to be found yet.
constexpr auto fork_max = std::chrono::milliseconds(300);
// One that has crashed is started again after a second, if there is a service manager.
constexpr auto restart_max = std::chrono::milliseconds(3000);
constexpr auto retry_pause = std::chrono::milliseconds(50);

Failure failure_of(int error, std::chrono::seconds timeout) {
    if (error == EAGAIN || error == EWOULDBLOCK)
        return {.exit = Exit::timed_out,
                .cause = fmt::format("the daemon did not answer within {} s; the outcome is unknown", timeout.count()),
                .hint = "--timeout SECONDS"};
    return {
        .exit = Exit::unreachable, .cause = fmt::format("the daemon hung up: {}", std::strerror(error)), .hint = {}};
}

// Zero would mean no limit.
void set_time_limit(int fd, int option, std::chrono::microseconds left) {
    const auto us = std::max<int64_t>(left.count(), 1);
    const timeval limit{.tv_sec = us / 1'000'000, .tv_usec = us % 1'000'000};
    ::setsockopt(fd, SOL_SOCKET, option, &limit, sizeof limit);
}

constexpr double young_s = 60;

double uptime_s() {
    double seconds = 0;
    std::ifstream("/proc/uptime") >> seconds;
    return seconds;
}

// NAME VALUE or NAME=VALUE in a process's command line; empty: it is not there.
std::string option_of(const std::filesystem::path& process, std::string_view name) {
    const std::string command_line = text_of(process / "cmdline");
    bool is_next = false;
    for (std::string_view rest = command_line; !rest.empty();) {
        const std::string_view word = rest.substr(0, rest.find('\0'));
        rest.remove_prefix(std::min(word.size() + 1, rest.size()));
        if (is_next) return std::string(word);
        if (word.starts_with(name) && word.substr(name.size()).starts_with('='))
            return std::string(word.substr(name.size() + 1));
        is_next = word == name;
    }
    return "";
}

// Whose tarnd it may be: this user's, or root's. Anybody can call a program so, and name any file.
bool is_trusted(const std::filesystem::path& process) {
    struct stat status{};
    return ::stat(process.c_str(), &status) == 0 && (status.st_uid == 0 || status.st_uid == ::geteuid());
}

// By its command line, which wins, or by the configuration that it names.
bool listens_elsewhere(const std::filesystem::path& process, const std::string& control) {
    if (const std::string named = option_of(process, "--control"); !named.empty()) return named != control;
    std::string file = option_of(process, "--config");
    std::error_code ignored;
    if (file.empty()) file = configuration_path_default;
    if (!file.starts_with('/')) file = std::filesystem::read_symlink(process / "cwd", ignored) / file;
    const Result<std::string> text = read_small_file((process / "root").string() + file, configuration_size_max);
    if (!text) return false;
    const auto configuration = parse_configuration(*text, file);
    return configuration && configuration->control != control;
}

// A guess from /proc: a tarnd younger than a minute that is not known to have another control socket. Its socket is
// worth waiting for.
bool is_daemon_starting(const std::string& control) {
    const double now_s = uptime_s();
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
        const std::string name = entry.path().filename();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        if (text_of(entry.path() / "comm") != "tarnd\n" || !is_trusted(entry.path())) continue;
        const uint64_t ticks = started_ticks(entry.path());
        const double age_s = now_s - static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
        if (ticks != 0 && age_s < young_s && !listens_elsewhere(entry.path(), control)) return true;
    }
    return false;
}

// Whether others than root may be let in by their group.
bool is_of_a_group(const std::string& socket) {
    struct stat status{};
    return ::stat(socket.c_str(), &status) == 0 && status.st_gid != 0;
}

// error: what connecting said.
std::string start_hint(const std::string& control, int error) {
    std::error_code ignored;
    const bool is_default = control == control_path_default;
    if (is_default && std::filesystem::exists(configuration_path_default, ignored))
        return std::filesystem::exists("/run/systemd/system", ignored) ? "systemctl start tarnd" : "tarnd &";
    if (is_default && error == ENOENT) return "tarn init, which makes this host's configuration";
    return fmt::format("tarnd --config FILE{}{}", is_default ? "" : " --control ", is_default ? "" : control);
}

}  // namespace

Outcome<UniqueFd> Client::connect() const {
    const Result<sockaddr_un> address = unix_address(socket_);
    if (!address) return refuse(Exit::usage, "the path of the control socket is empty or too long");
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    set_time_limit(fd.get(), SO_SNDTIMEO, timeout_);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0) return fd;
    const int error = errno;
    if (error == EAGAIN) return std::unexpected(failure_of(error, timeout_));
    if (error == EACCES || error == EPERM)
        return refuse(Exit::permission, fmt::format("{}: {}", socket_, std::strerror(error)),
                      is_of_a_group(socket_) ? "sudo, or join its group" : "sudo");
    return refuse(Exit::unreachable, fmt::format("no daemon at {}: {}", socket_, std::strerror(error)),
                  start_hint(socket_, error) + "; or --control PATH");
}

Outcome<UniqueFd> Client::connect_patiently() const {
    const auto began = std::chrono::steady_clock::now();
    for (;;) {
        auto fd = connect();
        if (fd || fd.error().exit != Exit::unreachable) return fd;
        std::error_code ignored;
        const auto passed = std::chrono::steady_clock::now() - began;
        // A daemon that stopped has taken its socket away: one that is there still has crashed, and may come back.
        const bool may_come = passed <= fork_max || is_daemon_starting(socket_) ||
                              (passed <= restart_max && std::filesystem::exists(socket_, ignored));
        if (passed > std::min<std::chrono::milliseconds>(start_max, timeout_) || !may_come) return fd;
        std::this_thread::sleep_for(retry_pause);
    }
}

// The socket of a daemon that was killed may take connections for a moment still.
Outcome<std::string> Client::exchange(const std::string& request, bool repeatable) const {
    const auto began = std::chrono::steady_clock::now();
    for (;;) {
        TRY(const UniqueFd fd, connect_patiently());
        auto reply = exchange_over(fd.get(), request);
        const bool hung_up = reply ? reply->empty() : reply.error().exit == Exit::unreachable;
        if (!hung_up || !repeatable || std::chrono::steady_clock::now() - began > restart_max) return reply;
        std::this_thread::sleep_for(retry_pause);
    }
}

// The daemon closes the connection after its answer: what came until then is all of it.
Outcome<std::string> Client::exchange_over(int fd, const std::string& request) const {
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    // False: the time is over, even for a daemon that goes on saying a little.
    const auto limit = [&](int option) {
        const auto left = deadline - std::chrono::steady_clock::now();
        set_time_limit(fd, option, std::chrono::duration_cast<std::chrono::microseconds>(left));
        return left.count() > 0;
    };
    for (std::string_view rest = request; !rest.empty();) {
        if (!limit(SO_SNDTIMEO)) return std::unexpected(failure_of(EAGAIN, timeout_));
        const ssize_t sent = ::send(fd, rest.data(), rest.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return std::unexpected(failure_of(errno, timeout_));
        rest.remove_prefix(static_cast<size_t>(sent));
    }
    std::string reply;
    for (std::array<char, 16384> buffer;;) {
        if (!limit(SO_RCVTIMEO)) return std::unexpected(failure_of(EAGAIN, timeout_));
        const ssize_t received = ::recv(fd, buffer.data(), buffer.size(), 0);
        if (received < 0 && errno == EINTR) continue;
        if (received < 0) return std::unexpected(failure_of(errno, timeout_));
        if (received == 0) return reply;
        reply.append(buffer.data(), static_cast<size_t>(received));
    }
}

Outcome<Json> Client::ask(const std::string& method, const std::string& path, const Json& body) const {
    std::string text;
    try {
        if (!body.is_null()) text = body.dump();
    } catch (const Json::type_error&) {
        return refuse(Exit::usage, "not valid UTF-8");
    }
    const auto reply = exchange(fmt::format("{} {} HTTP/1.1\r\nHost: tarn\r\nConnection: close\r\nContent-Type: "
                                            "application/json\r\nContent-Length: {}\r\n\r\n{}",
                                            method, path, text.size(), text),
                                method == "GET");
    if (!reply) return std::unexpected(reply.error());
    int status = 0;
    const size_t head_size = reply->find("\r\n\r\n");
    if (head_size == std::string::npos || std::sscanf(reply->c_str(), "HTTP/1.1 %d", &status) != 1)
        return refuse(Exit::unreachable, "the daemon hung up before it answered");
    Json json = Json::parse(reply->substr(head_size + 4), nullptr, false);
    if (status >= 300) return std::unexpected(failure_of(json, status));
    if (!json.is_object()) return refuse(Exit::failed, "the daemon's answer is not JSON");
    return json;
}

}  // namespace tarn
