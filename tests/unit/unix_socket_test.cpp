#include "utils/unix_socket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/scratch_directory.hpp"

namespace tarn {
namespace {

class UnixSocketTest : public testing::Test {
  protected:
    void SetUp() override {
        std::filesystem::create_directory(root_ / "inner");
        mode(root_, 0755);
        mode(root_ / "inner", 0755);
    }
    static void mode(const std::filesystem::path& path, mode_t mode) { ASSERT_EQ(::chmod(path.c_str(), mode), 0); }
    std::string reason() const { return unsafe_place(root_ / "inner" / "socket"); }
    ScratchDirectory scratch_;
    std::filesystem::path root_ = scratch_.path();
};

TEST_F(UnixSocketTest, a_directory_that_only_its_owner_writes_is_a_good_place) {
    EXPECT_EQ(reason(), "");
    EXPECT_EQ(unsafe_place(root_ / "inner" / "not there yet" / "socket"), "");
}

TEST_F(UnixSocketTest, one_that_others_write_is_not_nor_one_below_such) {
    mode(root_ / "inner", 0777);
    EXPECT_NE(reason().find("inner (mode 0777)"), std::string::npos) << reason();
    mode(root_ / "inner", 0755);
    mode(root_, 0757);
    EXPECT_NE(reason().find("(mode 0757)"), std::string::npos) << reason();
    EXPECT_NE(unsafe_place(root_ / "not there yet" / "socket"), "");
}

TEST_F(UnixSocketTest, where_only_the_owner_of_a_file_removes_it_others_may_write) {
    mode(root_, 01777);
    EXPECT_EQ(reason(), "");
}

TEST_F(UnixSocketTest, our_own_group_may_write_and_others_may_not) {
    mode(root_, 0775);
    EXPECT_EQ(reason(), "");
    if (::geteuid() != 0) GTEST_SKIP() << "needs to be root";
    ASSERT_EQ(::chown(root_.c_str(), 0, 54321), 0);
    EXPECT_NE(reason().find("(mode 0775)"), std::string::npos) << reason();
    mode(root_, 0755);
    EXPECT_EQ(reason(), "");
    ASSERT_EQ(::chown(root_.c_str(), 54321, 0), 0);
    EXPECT_NE(reason().find("another user (54321)"), std::string::npos) << reason();
}

TEST_F(UnixSocketTest, a_symbolic_link_counts_as_what_it_leads_to) {
    mode(root_ / "inner", 0777);
    std::filesystem::create_directory(root_ / "good");
    std::filesystem::create_symlink(root_ / "inner", root_ / "good" / "link");
    EXPECT_NE(unsafe_place(root_ / "good" / "link" / "socket").find("inner"), std::string::npos);
}

TEST_F(UnixSocketTest, the_user_at_the_other_end_is_known) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    EXPECT_EQ(peer_of(pair[0])->uid, ::geteuid());
    ::close(pair[0]);
    ::close(pair[1]);
    EXPECT_FALSE(peer_of(-1));
}

// The process that connected has ended before we look, and its child goes on with the socket.
TEST_F(UnixSocketTest, a_process_at_the_other_end_that_is_gone_is_not_taken_for_another_one) {
    const std::string path = root_ / "socket";
    const UniqueFd listener = std::move(*listen_unix(path, 0600));
    const auto connected = [&] {
        UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const sockaddr_un address = *unix_address(path);
        if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) socket.reset();
        return socket;
    };
    const UniqueFd ours = connected();
    const UniqueFd from_us(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(peer_lives(from_us.get()));
    constexpr int so_peerpidfd = 77;
    int pidfd = -1;
    socklen_t size = sizeof pidfd;
    if (::getsockopt(from_us.get(), SOL_SOCKET, so_peerpidfd, &pidfd, &size) != 0)
        GTEST_SKIP() << "needs Linux 6.5 or newer";
    const UniqueFd owned(pidfd);

    int end[2];
    ASSERT_EQ(::pipe2(end, O_CLOEXEC), 0);
    UniqueFd keeps_child(end[1]);
    const UniqueFd child_waits(end[0]);
    const pid_t parent = ::fork();
    if (parent == 0) {
        const UniqueFd theirs = connected();
        if (::fork() != 0) ::_exit(0);
        keeps_child.reset();
        char byte = 0;
        (void)::read(child_waits.get(), &byte, 1);  // until the test has looked
        ::_exit(0);
    }
    ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
    const UniqueFd from_them(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_EQ(peer_of(from_them.get())->pid, parent);
    EXPECT_FALSE(peer_lives(from_them.get()));
}

}  // namespace
}  // namespace tarn
