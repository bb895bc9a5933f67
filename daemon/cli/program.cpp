#include "daemon/cli/program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "utils/file_text.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

namespace {

// What a shell, and posix_spawn where it cannot tell, say of a program that is not there.
constexpr int not_found_status = 127;
constexpr int signal_status_base = 128;

// False: the limit has passed. A process that has ended stays until it is waited for, so the number is its own.
bool ends_within(pid_t process, std::chrono::milliseconds limit) {
    const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    const auto until = std::chrono::steady_clock::now() + limit;
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
        if (left.count() <= 0) return false;
        pollfd ended{.fd = handle.get(), .events = POLLIN, .revents = 0};
        if (::poll(&ended, 1, static_cast<int>(left.count())) > 0) return true;
    }
}

}  // namespace

std::string ProgramEnd::last_line() const {
    const size_t end = said.find_last_not_of('\n');
    if (end == std::string::npos) return "";
    const size_t newline = said.rfind('\n', end);
    const size_t begin = newline == std::string::npos ? 0 : newline + 1;
    return said.substr(begin, end + 1 - begin);
}

ProgramEnd run_program(std::vector<std::string> words, std::optional<std::chrono::milliseconds> limit) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const UniqueFd said(::memfd_create("said", MFD_CLOEXEC));
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, said.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&files, said.get(), STDERR_FILENO);
    pid_t process = 0;
    ProgramEnd end;
    end.error = ::posix_spawnp(&process, arguments.front(), &files, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&files);
    if (end.error != 0) return end;
    if (limit && !ends_within(process, *limit)) {
        end.timed_out = true;
        ::kill(process, SIGKILL);
    }
    int status = 0;
    while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    end.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : signal_status_base + WTERMSIG(status);
    if (end.exit_status == not_found_status) end.error = ENOENT;
    ::lseek(said.get(), 0, SEEK_SET);
    end.said = text_of(said.get());
    return end;
}

}  // namespace tarn
