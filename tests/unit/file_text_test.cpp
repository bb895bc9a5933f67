// Files of /proc: of a process that ends while they are read, and of one that is in another PID namespace.
#include "utils/file_text.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "utils/unique_fd.hpp"

namespace tarn {
namespace {

TEST(FileText, of_a_process_that_ends_between_open_and_read_is_empty) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    ASSERT_GT(child, 0);
    const UniqueFd stat(::open(fmt::format("/proc/{}/stat", child).c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(stat);
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_EQ(text_of(stat.get()), "");
    EXPECT_EQ(text_of(fmt::format("/proc/{}/stat", child)), "") << "there is none any more";
    EXPECT_TRUE(text_of("/proc/self/stat").starts_with(std::to_string(::getpid())));
}

TEST(FileText, the_proc_of_another_pid_namespace_is_not_ours) {
    EXPECT_TRUE(proc_is_ours());
    constexpr int none = 2;
    const pid_t child = ::fork();
    if (child == 0) {
        if (::unshare(CLONE_NEWPID) != 0) ::_exit(none);
        const pid_t first = ::fork();
        if (first == 0) ::_exit(proc_is_ours() ? 1 : 0);
        int status = 0;
        ::waitpid(first, &status, 0);
        ::_exit(WEXITSTATUS(status));
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) == none) GTEST_SKIP() << "needs to be root";
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tarn
