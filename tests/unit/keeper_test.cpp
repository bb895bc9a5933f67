// What tarnd asks of a tarn-keeper; the test plays that one.
#include "daemon/keeper/keeper.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/keeper/keeper_watch.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/other_user.hpp"
#include "utils/broadcast.hpp"
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

// What one end says the other hears, or not.
class KeeperMessages : public testing::Test {
  protected:
    void SetUp() override {
        int pair[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        near_ = UniqueFd(pair[0]);
        far_ = UniqueFd(pair[1]);
    }
    // As it travels.
    std::vector<std::byte> bytes_of(keeper::Word word, const std::string& name) const {
        EXPECT_TRUE(keeper::say(near_.get(), word, name));
        std::vector<std::byte> bytes(4096);
        const ssize_t size = ::recv(far_.get(), bytes.data(), bytes.size(), 0);
        EXPECT_GT(size, 0);
        bytes.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
        return bytes;
    }
    void send(std::span<const std::byte> bytes) const {
        ASSERT_EQ(::send(near_.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    }
    Errc error_of_hearing() const {
        const Result<keeper::Said> said = keeper::hear(far_.get());
        return said ? Errc{} : said.error().code;
    }

    UniqueFd near_;
    UniqueFd far_;
};

// As of somebody who wants it to run out of them.
TEST_F(KeeperMessages, a_second_descriptor_of_a_message_does_not_stay_open) {
    std::vector<std::byte> text = bytes_of(keeper::Word::keep, "nbd0");
    const size_t before = open_descriptors();
    iovec bytes{.iov_base = text.data(), .iov_len = text.size()};
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
    const std::array<int, 2> descriptors{near_.get(), far_.get()};
    std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof descriptors);
    ASSERT_EQ(::sendmsg(near_.get(), &message, 0), static_cast<ssize_t>(text.size()));
    {
        const Result<keeper::Said> said = keeper::hear(far_.get());
        ASSERT_TRUE(said);
        EXPECT_TRUE(said->fd);
        EXPECT_EQ(open_descriptors(), before + 1);
    }
    EXPECT_EQ(open_descriptors(), before);
}

// The rest of the name, say, would be missing.
TEST_F(KeeperMessages, one_that_ends_in_the_middle_is_none) {
    const std::vector<std::byte> bytes = bytes_of(keeper::Word::drop, "nbd10");
    send(std::span(bytes).first(4));
    near_.reset();
    EXPECT_EQ(error_of_hearing(), Errc::protocol);
}

TEST_F(KeeperMessages, a_name_that_does_not_end_is_none) {
    const std::string longest(keeper::name_size_max, 'x');
    std::vector<std::byte> bytes = bytes_of(keeper::Word::drop, longest);
    send(bytes);
    EXPECT_EQ(keeper::hear(far_.get())->name, longest);
    bytes.back() = std::byte{'x'};
    send(bytes);
    EXPECT_EQ(error_of_hearing(), Errc::protocol);
}

// A program that tarnd starts must not have a client's memory, nor keep a device's socket open.
TEST_F(KeeperMessages, what_is_taken_is_closed_for_a_program_that_is_started) {
    EXPECT_TRUE(keeper::say(near_.get(), keeper::Word::done, "nbd0", near_.get()));
    const Result<keeper::Said> said = keeper::hear(far_.get());
    ASSERT_TRUE(said);
    EXPECT_EQ(::fcntl(said->fd.get(), F_GETFD), FD_CLOEXEC);
}

// It was busy, say, for longer than anybody waits for it.
TEST_F(KeeperTest, one_that_did_not_answer_who_would_watch_it_is_asked_again) {
    const auto loop = std::move(*Loop::create());
    Keeper keeper(path_);
    Broadcast heard;
    std::string cut;
    KeeperWatch watch(keeper, *loop,
                      {.cut =
                           [&](const std::string& name) {
                               cut = name;
                               heard.announce();
                           },
                       .lost = []() -> Task<Result<>> { co_return Result<>(); }});
    UniqueFd client;
    std::thread other([&] {
        EXPECT_TRUE(keeper::hear(accept().get()));
        client = accept();
        EXPECT_EQ(hear_and_answer(client, keeper::Word::done).word, keeper::Word::watch);
        EXPECT_TRUE(keeper::say(client.get(), keeper::Word::cut, "nbd0"));
    });
    loop->run_until_done([](KeeperWatch& watch, Broadcast& heard) -> Task<bool> {
        watch.begin();
        co_await heard.next(0);
        co_await watch.stop();
        co_return true;
    }(watch, heard));
    other.join();
    EXPECT_EQ(cut, "nbd0");
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

class KeeperOfAnotherUser : public KeeperTest {
  protected:
    void SetUp() override {
        if (!can_be_another_user()) GTEST_SKIP() << "only root can be another user";
        const sockaddr_un address = *unix_address(theirs_);
        socket_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ASSERT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        // Who connects sees the user who listens.
        as_another_user([this] { ASSERT_EQ(::listen(socket_.get(), 10), 0); });
    }

    const std::string theirs_ = directory_ / "theirs";
    UniqueFd socket_;
};

// It would get all that clients have written, or give us what to take for it.
TEST_F(KeeperOfAnotherUser, is_neither_believed_nor_told_anything) {
    const Keeper theirs(theirs_, std::chrono::seconds(1));
    PassedDescriptors none;
    EXPECT_EQ(theirs.keep("arena", listening_.get()).error().code, Errc::refused);
    EXPECT_EQ(Keeper(theirs_, std::chrono::seconds(1)).take(none).error().code, Errc::refused);
    EXPECT_EQ(theirs.has("arena").error().code, Errc::refused);
    // All of it was closed unsaid.
    for (int i = 0; i < 3; ++i) {
        const UniqueFd client(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        EXPECT_EQ(keeper::hear(client.get()).error().code, Errc::closed);
    }
}

UniqueFd memory() {
    return UniqueFd(::memfd_create("memory", MFD_CLOEXEC));
}

ino_t inode_of(const UniqueFd& fd) {
    struct stat status{};
    EXPECT_EQ(::fstat(fd.get(), &status), 0);
    return status.st_ino;
}

TEST_F(KeeperOfAnotherUser, does_not_hide_the_memory_that_the_manager_has) {
    std::vector<PassedDescriptors::Passed> passed;
    passed.push_back({.name = "arena", .fd = memory()});
    PassedDescriptors descriptors(std::move(passed));
    const auto taken = Keeper(theirs_, std::chrono::seconds(1)).take(descriptors);
    EXPECT_TRUE(taken) << "refused";
    EXPECT_EQ(descriptors.take("arena").size(), 0u) << "nobody has looked at it";
}

TEST_F(KeeperTest, the_memories_of_the_keeper_and_of_the_service_manager_are_taken) {
    const UniqueFd at_keeper = memory();
    std::vector<PassedDescriptors::Passed> passed;
    std::vector<ino_t> inodes;
    for (const char* const name : {"arena", "nbd", "arena"}) {
        passed.push_back({.name = name, .fd = memory()});
        inodes.push_back(inode_of(passed.back().fd));
    }
    const auto taken = [&](PassedDescriptors descriptors) {
        std::thread other([&] {
            const UniqueFd client = accept();
            EXPECT_TRUE(keeper::hear(client.get()));
            for (const char* const name : {"arena", "nbd0"})
                EXPECT_TRUE(keeper::say(client.get(), keeper::Word::done, name, at_keeper.get()));
            EXPECT_TRUE(keeper::say(client.get(), keeper::Word::none));
        });
        std::map<std::string, std::vector<ino_t>> all;
        Result<std::vector<Keeper::Kept>> kept = Keeper(path_).take(descriptors);
        other.join();
        EXPECT_TRUE(kept);
        if (!kept) return all;
        for (const Keeper::Kept& each : *kept) all[each.name].push_back(inode_of(each.fd));
        return all;
    };
    std::map<std::string, std::vector<ino_t>> expected{{"arena", {inode_of(at_keeper)}},
                                                       {"nbd0", {inode_of(at_keeper)}}};
    EXPECT_EQ(taken(PassedDescriptors()), expected);
    expected["arena"] = {inode_of(at_keeper), inodes[0], inodes[2]};
    EXPECT_EQ(taken(PassedDescriptors(std::move(passed))), expected);
}

TEST_F(KeeperTest, what_comes_without_a_descriptor_is_not_taken) {
    std::thread other([&] {
        const UniqueFd client = accept();
        EXPECT_TRUE(keeper::hear(client.get()));
        EXPECT_TRUE(keeper::say(client.get(), keeper::Word::done, "nbd0"));
        (void)keeper::say(client.get(), keeper::Word::none);
    });
    PassedDescriptors none;
    EXPECT_FALSE(Keeper(path_).take(none));
    other.join();
}

// It may have had the newest memory, and devices.
TEST_F(KeeperTest, one_that_hangs_up_is_not_taken_for_one_that_has_nothing) {
    std::vector<PassedDescriptors::Passed> passed;
    passed.push_back({.name = "arena", .fd = memory()});
    PassedDescriptors of_manager(std::move(passed));
    std::thread other([&] {
        const UniqueFd client = accept();
        EXPECT_TRUE(keeper::hear(client.get()));
        EXPECT_TRUE(keeper::say(client.get(), keeper::Word::done, "nbd0", listening_.get()));
    });
    const auto taken = Keeper(path_).take(of_manager);
    other.join();
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, Errc::closed);
}

TEST_F(KeeperTest, where_there_is_none_the_service_manager_s_memory_is_all) {
    std::vector<PassedDescriptors::Passed> passed;
    passed.push_back({.name = "arena", .fd = memory()});
    PassedDescriptors of_manager(std::move(passed));
    const auto taken = Keeper(directory_ / "none").take(of_manager);
    ASSERT_TRUE(taken);
    EXPECT_EQ(taken->size(), 1u);
    PassedDescriptors none;
    const auto nothing = Keeper(directory_ / "none").take(none);
    ASSERT_TRUE(nothing);
    EXPECT_TRUE(nothing->empty());
}

}  // namespace
}  // namespace tarn
