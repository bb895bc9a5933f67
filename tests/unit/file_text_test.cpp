// A file of /proc whose process ends while it is read: the kernel has opened it, and has nothing to say.
#include "utils/file_text.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
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

}  // namespace
}  // namespace tarn
