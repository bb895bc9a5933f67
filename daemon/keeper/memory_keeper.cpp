#include "daemon/keeper/memory_keeper.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "daemon/keeper/keeper_protocol.hpp"
#include "utils/log.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {

namespace {

constexpr const char* store_name = "arena";

// Descriptors live with it as long as the service's unit allows (FileDescriptorStoreMax=).
bool has_service_manager() {
    return std::getenv("NOTIFY_SOCKET") != nullptr;
}

Result<std::optional<UniqueFd>> take_from_service_manager() {
    char** names = nullptr;
    const int count = ::sd_listen_fds_with_names(1, &names);
    if (count < 0) return fail(Errc::io, -count, "keeper: sd_listen_fds_with_names");
    std::optional<UniqueFd> taken;
    for (int i = 0; i < count; ++i) {
        UniqueFd fd(SD_LISTEN_FDS_START + i);
        if (std::strcmp(names[i], store_name) == 0) taken = std::move(fd);
        std::free(names[i]);
    }
    std::free(static_cast<void*>(names));
    return taken;
}

}  // namespace

Result<UniqueFd> MemoryKeeper::connect() const {
    TRY(const sockaddr_un address, unix_address(socket_));
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) return fail(Errc::io, errno, "keeper: socket");
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        // Whoever listens gets all that the cluster's clients have written, or gives us what to take for it.
        TRY(const ucred peer, peer_of(fd.get()));
        if (peer.uid != ::geteuid())
            return fail(Errc::refused, 0, "keeper: another user's process listens on its socket");
        return fd;
    }
    if (errno == ENOENT || errno == ECONNREFUSED) return fail(Errc::not_found, errno, "keeper: connect");
    return fail(Errc::io, errno, "keeper: connect");
}

Result<std::optional<UniqueFd>> MemoryKeeper::take() {
    if (has_service_manager()) {
        TRY(std::optional<UniqueFd> taken, take_from_service_manager());
        if (taken) return taken;
    }
    return take_from_process();
}

Result<std::optional<UniqueFd>> MemoryKeeper::take_from_process() const {
    Result<UniqueFd> connection = connect();
    if (!connection && connection.error().code == Errc::not_found) return std::nullopt;
    if (!connection) return fail(connection.error());
    TRY_VOID(keeper::say(connection->get(), keeper::Word::take));
    TRY(keeper::Said said, keeper::hear(connection->get()));
    if (!said.fd) return std::nullopt;
    return std::move(said.fd);
}

// Beside tarnd, wherever that is. In a session of its own: what ends tarnd's does not reach it.
Result<> MemoryKeeper::start() const {
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
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    std::string name = "tarn-keeper";
    std::string shown = socket_;  // for who looks at the list of processes
    std::string until = keeper::until_shutdown;
    char* const arguments[] = {name.data(), shown.data(), has_service_manager() ? until.data() : nullptr, nullptr};
    char* const environment[] = {nullptr};
    pid_t pid = 0;
    const int spawned = ::posix_spawn(&pid, program.c_str(), &files, &attributes, arguments, environment);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&files);
    if (spawned != 0) {
        ::unlink(socket_.c_str());
        return fail(Errc::io, spawned, "keeper: posix_spawn");
    }
    return {};
}

Result<> MemoryKeeper::keep(int fd) {
    if (has_service_manager()) {
        const int said = ::sd_pid_notify_with_fds(0, 0, "FDSTORE=1\nFDNAME=arena", &fd, 1);
        if (said <= 0) return fail(Errc::io, -said, "keeper: sd_pid_notify_with_fds");
        end_process();  // of the stop before
        return {};
    }
    return give_to_process(fd);
}

void MemoryKeeper::keep_beyond_stop(int fd) {
    if (!has_service_manager()) return;  // it does already
    if (const Result<> given = give_to_process(fd); !given)
        log::warning("memory: nobody keeps it beyond this stop ({}); what does not become durable is lost",
                     log::describe(given.error()));
}

Result<> MemoryKeeper::give_to_process(int fd) const {
    Result<UniqueFd> connection = connect();
    if (!connection && connection.error().code == Errc::not_found) {
        TRY_VOID(start());
        connection = connect();
    }
    if (!connection) return fail(connection.error());
    TRY_VOID(keeper::say(connection->get(), keeper::Word::keep, fd));
    TRY_VOID(keeper::hear(connection->get()));
    return {};
}

void MemoryKeeper::drop() {
    if (has_service_manager()) ::sd_notify(0, "FDSTOREREMOVE=1\nFDNAME=arena");
    end_process();
}

void MemoryKeeper::end_process() const {
    const Result<UniqueFd> connection = connect();
    if (!connection || !keeper::say(connection->get(), keeper::Word::drop)) return;
    (void)keeper::hear(connection->get());  // its socket is gone by then
}

}  // namespace tarn
