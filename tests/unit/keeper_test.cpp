// What tarnd asks of a tarn-keeper; the test plays that one.
#include "daemon/keeper/keeper.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/support/scratch_directory.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {
namespace {

class KeeperTest : public testing::Test {
  protected:
    UniqueFd accept() const { return UniqueFd(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
    static keeper::Said hear_and_answer(const UniqueFd& client, keeper::Word word) {
        Result<keeper::Said> said = keeper::hear(client.get());
        EXPECT_TRUE(said);
        EXPECT_TRUE(keeper::say(client.get(), word));
        return said ? std::move(*said) : keeper::Said();
    }

    ScratchDirectory directory_;
    const std::string path_ = directory_ / "keeper";
    const UniqueFd listening_ = std::move(*listen_unix(path_, 0600));
    const Keeper keeper_{path_};
};

TEST_F(KeeperTest, what_is_kept_comes_with_its_name) {
    keeper::Said said;
    std::thread other([&] { said = hear_and_answer(accept(), keeper::Word::done); });
    EXPECT_TRUE(keeper_.keep("nbd0", listening_.get()));
    other.join();
    EXPECT_EQ(said.word, keeper::Word::keep);
    EXPECT_EQ(said.name, "nbd0");
    EXPECT_TRUE(said.fd);
}

// It was killed, and its socket goes last.
TEST_F(KeeperTest, one_that_ends_meanwhile_is_asked_no_more_and_its_successor_is) {
    keeper::Said said;
    std::thread other([&] {
        accept().reset();
        const UniqueFd late = accept();
        EXPECT_TRUE(keeper::hear(late.get()));
    });
    EXPECT_FALSE(keeper_.keep("arena", listening_.get())) << "two in a row are not asked again";
    other.join();
    std::thread successor([&] {
        accept().reset();
        said = hear_and_answer(accept(), keeper::Word::done);
    });
    EXPECT_TRUE(keeper_.keep("arena", listening_.get()));
    successor.join();
    EXPECT_EQ(said.name, "arena");
}

size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// As of somebody who wants it to run out of them.
TEST_F(KeeperTest, a_second_descriptor_of_a_message_does_not_stay_open) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const UniqueFd near(pair[0]);
    const UniqueFd far(pair[1]);
    ASSERT_TRUE(keeper::say(near.get(), keeper::Word::keep, "nbd0"));
    std::array<std::byte, 4096> text{};
    const ssize_t size = ::recv(far.get(), text.data(), text.size(), 0);
    ASSERT_GT(size, 0);
    const size_t before = open_descriptors();
    iovec bytes{.iov_base = text.data(), .iov_len = static_cast<size_t>(size)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(2 * sizeof(int));
    const std::array<int, 2> descriptors{near.get(), far.get()};
    std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof descriptors);
    ASSERT_EQ(::sendmsg(near.get(), &message, 0), size);
    {
        const Result<keeper::Said> said = keeper::hear(far.get());
        ASSERT_TRUE(said);
        EXPECT_TRUE(said->fd);
        EXPECT_EQ(open_descriptors(), before + 1);
    }
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(KeeperTest, it_says_what_it_has) {
    for (const bool has : {true, false}) {
        std::thread other([&] { hear_and_answer(accept(), has ? keeper::Word::done : keeper::Word::none); });
        EXPECT_EQ(keeper_.has("nbd0").value_or(!has), has);
        other.join();
    }
}

TEST_F(KeeperTest, signals_do_not_end_the_wait_for_an_answer) {
    struct sigaction action{};
    struct sigaction before{};
    action.sa_handler = [](int) {};
    ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
    const pthread_t waiting = ::pthread_self();
    std::thread other([&] {
        const UniqueFd client = accept();
        EXPECT_TRUE(keeper::hear(client.get()));
        for (int i = 0; i < 1000; ++i) {
            ::pthread_kill(waiting, SIGUSR1);
            std::this_thread::yield();
        }
        EXPECT_TRUE(keeper::say(client.get(), keeper::Word::done));
    });
    EXPECT_TRUE(keeper_.has("nbd0").value_or(false));
    other.join();
    ::sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace tarn
