#include "daemon/keeper/keeper.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "daemon/keeper/keeper_protocol.hpp"
#include "utils/log.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {

namespace {

constexpr std::chrono::seconds begin_within{5};

// Descriptors live with it as long as the service's unit allows (FileDescriptorStoreMax=).
bool has_service_manager() {
    return std::getenv("NOTIFY_SOCKET") != nullptr;
}

// Whether the process that was started has left a keeper behind. One that takes long, as an older program does that
// stays itself, counts as begun: who asks it then waits no longer than for any answer.
bool has_begun(pid_t process) {
    const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    pollfd ended{.fd = handle.get(), .events = POLLIN, .revents = 0};
    while (handle && ::poll(&ended, 1, static_cast<int>(std::chrono::milliseconds(begin_within).count())) < 0 &&
           errno == EINTR) {
    }
    int status = 0;
    ::waitpid(process, &status, WNOHANG);
    return status == 0;
}

}  // namespace

Result<UniqueFd> Keeper::connect() const {
    TRY(const sockaddr_un address, unix_address(socket_));
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) return fail(Errc::io, errno, "keeper: socket");
    keeper::limit_waits(fd.get(), patience_);
    int connected = -1;
    do connected = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    while (connected != 0 && errno == EINTR);
    if (connected == 0) {
        // Whoever listens gets all that the cluster's clients have written, or gives us what to take for it.
        TRY(const ucred peer, peer_of(fd.get()));
        if (peer.uid != ::geteuid())
            return fail(Errc::refused, 0, "keeper: another user's process listens on its socket");
        return fd;
    }
    if (errno == ENOENT || errno == ECONNREFUSED) return fail(Errc::not_found, errno, "keeper: connect");
    return fail(Errc::io, errno, "keeper: connect");
}

Result<std::vector<Keeper::Kept>> Keeper::take(PassedDescriptors& passed) {
    Result<std::vector<Kept>> kept = take_from_process();
    std::vector<UniqueFd> memory = passed.take(memory_name);
    if (memory.empty()) return kept;
    if (!kept && kept.error().code == Errc::refused) {
        log::warning("{}; what the service manager keeps is taken over all the same", log::describe(kept.error()));
        kept.emplace();
    }
    if (!kept) return kept;
    for (UniqueFd& each : memory) kept->push_back({.name = memory_name, .fd = std::move(each)});
    return kept;
}

Result<std::vector<Keeper::Kept>> Keeper::take_from_process() const {
    std::vector<Kept> kept;
    Result<UniqueFd> connection = connect();
    if (!connection && connection.error().code == Errc::not_found) return kept;
    if (!connection) return fail(connection.error());
    TRY_VOID(keeper::say(connection->get(), keeper::Word::take));
    for (;;) {
        TRY(keeper::Said said, keeper::hear(connection->get()));
        if (said.word != keeper::Word::done) return kept;
        if (!said.fd) return fail(Errc::protocol, 0, "keeper: a descriptor is missing");
        kept.push_back({.name = std::move(said.name), .fd = std::move(said.fd)});
    }
}

// Beside tarnd, wherever that is. In a session of its own: what ends tarnd's does not reach it.
Result<> Keeper::start() const {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    const std::string program = (self.parent_path() / "tarn-keeper").string();
    if (error || ::access(program.c_str(), X_OK) != 0)
        return fail(Errc::not_found, errno, "keeper: there is no tarn-keeper beside tarnd");
    TRY(const UniqueFd listening, listen_unix(socket_, 0600));
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, listening.get(), keeper::listening_fd);
    ::posix_spawn_file_actions_addclosefrom_np(&files, keeper::listening_fd + 1);
    ::posix_spawn_file_actions_addchdir_np(&files, "/");
    // What tarnd's own threads do not hear, it is to hear.
    sigset_t none;
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    std::string name = "tarn-keeper";
    std::string shown = socket_;  // for who looks at the list of processes
    std::string until = keeper::until_shutdown;
    char* const arguments[] = {name.data(), shown.data(), has_service_manager() ? until.data() : nullptr, nullptr};
    char* const environment[] = {nullptr};
    pid_t pid = 0;
    const int spawned = ::posix_spawn(&pid, program.c_str(), &files, &attributes, arguments, environment);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&files);
    if (spawned == 0 && has_begun(pid)) return {};
    ::unlink(socket_.c_str());
    return fail(Errc::io, spawned, "keeper: it does not start");
}

Result<> Keeper::keep_memory(int fd) const {
    if (!has_service_manager()) return keep(memory_name, fd);
    const std::string state = std::string("FDSTORE=1\nFDNAME=") + memory_name;
    const int said = ::sd_pid_notify_with_fds(0, 0, state.c_str(), &fd, 1);
    if (said <= 0) return fail(Errc::io, -said, "keeper: sd_pid_notify_with_fds");
    drop(memory_name);  // of the stop before
    return {};
}

void Keeper::keep_memory_beyond_stop(int fd) const {
    if (!has_service_manager()) return;  // it does already
    if (const Result<> given = keep(memory_name, fd); !given)
        log::warning("memory: nobody keeps it beyond this stop ({}); what does not become durable is lost",
                     log::describe(given.error()));
}

bool Keeper::keeps_memory_itself() {
    return !has_service_manager();
}

void Keeper::drop_memory() const {
    if (has_service_manager()) ::sd_notify(0, (std::string("FDSTOREREMOVE=1\nFDNAME=") + memory_name).c_str());
    drop(memory_name);
}

// One that is ending still takes connections for a moment, and closes them.
Result<> Keeper::keep(const std::string& name, int fd) const {
    const Result<> kept = keep_once(name, fd);
    const bool has_ended = !kept && (kept.error().code == Errc::closed || kept.error().sys_errno == ECONNRESET ||
                                     kept.error().sys_errno == EPIPE);
    return has_ended ? keep_once(name, fd) : kept;
}

Result<> Keeper::keep_once(const std::string& name, int fd) const {
    TRY(const UniqueFd connection, connect_or_start());
    TRY_VOID(keeper::say(connection.get(), keeper::Word::keep, name, fd));
    TRY_VOID(keeper::hear(connection.get()));
    return {};
}

// Two threads that find none start one.
Result<UniqueFd> Keeper::connect_or_start() const {
    const auto is_missing = [](const Result<UniqueFd>& connection) {
        return !connection && connection.error().code == Errc::not_found;
    };
    Result<UniqueFd> connection = connect();
    if (!is_missing(connection)) return connection;
    const std::lock_guard guard(starting_);
    connection = connect();
    if (!is_missing(connection)) return connection;
    TRY_VOID(start());
    return connect();
}

Result<bool> Keeper::has(const std::string& name) const {
    TRY(const UniqueFd connection, connect());
    TRY_VOID(keeper::say(connection.get(), keeper::Word::has, name));
    TRY(const keeper::Said said, keeper::hear(connection.get()));
    return said.word == keeper::Word::done;
}

Result<UniqueFd> Keeper::watch() const {
    TRY(UniqueFd connection, connect());
    TRY_VOID(keeper::say(connection.get(), keeper::Word::watch));
    return connection;
}

void Keeper::drop(const std::string& name) const {
    (void)tell(keeper::Word::drop, name);  // without a tarn-keeper there is nothing to drop
}

Result<> Keeper::cut(const std::string& name) const {
    return tell(keeper::Word::cut, name);
}

Result<> Keeper::tell(keeper::Word word, const std::string& name) const {
    TRY(const UniqueFd connection, connect());
    TRY_VOID(keeper::say(connection.get(), word, name));
    TRY_VOID(keeper::hear(connection.get()));  // its socket is gone by then, if it ends
    return {};
}

}  // namespace tarn
