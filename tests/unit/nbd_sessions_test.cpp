#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <vector>

#include "frontends/nbd/sessions.hpp"
#include "tests/support/scratch_directory.hpp"
#include "utils/file_text.hpp"
#include "utils/loop.hpp"
#include "utils/sync.hpp"
#include "utils/unique_fd.hpp"
#include "utils/unix_socket.hpp"

namespace tarn::nbd {
namespace {

constexpr VolumeId volume = 3;
constexpr int no_socket = -1;

class NbdSessions : public testing::Test {
  protected:
    std::shared_ptr<VolumeSession> join(const Client& client) {
        std::shared_ptr<VolumeSession> session = sessions_.find(client, volume, now_);
        if (!session) session = std::make_shared<VolumeSession>();
        return sessions_.joined(client, volume, session, no_socket);
    }

    Sessions sessions_;
    Sessions::Clock::time_point now_{};
    const Client client_{.address = "192.0.2.1"};
};

TEST_F(NbdSessions, connections_of_one_client_are_one_session) {
    const auto first = join(client_);
    EXPECT_EQ(join(client_), first);
    EXPECT_EQ(join({.address = "192.0.2.1", .text = "another port"}), first);
    EXPECT_NE(join({.address = "192.0.2.2"}), first);
    EXPECT_EQ(sessions_.find(client_, volume + 1, now_), nullptr) << "of another volume";
}

TEST_F(NbdSessions, a_name_that_was_proved_is_one_client_wherever_it_comes_from) {
    const auto first = join({.address = "192.0.2.1", .identity = "psk:alice"});
    EXPECT_EQ(join({.address = "192.0.2.2", .identity = "psk:alice"}), first);
    EXPECT_NE(join({.address = "192.0.2.1", .identity = "psk:bob"}), first);
    EXPECT_NE(join(client_), first) << "it comes from there without a proof";
}

TEST_F(NbdSessions, of_two_that_come_at_once_the_second_takes_what_the_first_has) {
    const auto first = std::make_shared<VolumeSession>();
    const auto second = std::make_shared<VolumeSession>();
    EXPECT_EQ(sessions_.joined(client_, volume, first, no_socket), first);
    EXPECT_EQ(sessions_.joined(client_, volume, second, no_socket), first);
    sessions_.left(client_, volume, no_socket, true, now_);
    EXPECT_EQ(sessions_.size(), 0u) << "the second has not joined yet";
}

TEST_F(NbdSessions, one_that_breaks_off_finds_its_session_again_for_ten_minutes) {
    const auto first = join(client_);
    sessions_.left(client_, volume, no_socket, false, now_);
    now_ += Sessions::remembered_for - std::chrono::seconds(1);
    EXPECT_EQ(join(client_), first);
    sessions_.left(client_, volume, no_socket, false, now_);
    now_ += Sessions::remembered_for;
    EXPECT_EQ(sessions_.find(client_, volume, now_), nullptr);
}

TEST_F(NbdSessions, it_ends_when_the_last_connection_says_so) {
    const auto first = join(client_);
    EXPECT_EQ(join(client_), first);
    sessions_.left(client_, volume, no_socket, true, now_);
    EXPECT_EQ(sessions_.find(client_, volume, now_), first) << "the other one is there";
    sessions_.left(client_, volume, no_socket, true, now_);
    EXPECT_EQ(sessions_.find(client_, volume, now_), nullptr);
}

TEST_F(NbdSessions, a_process_that_is_gone_does_not_come_back) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    const UniqueFd ours(pair[0]);
    const UniqueFd theirs(pair[1]);
    const Client self = Client::of(ours.get());
    EXPECT_EQ(self.process, ::getpid());
    EXPECT_NE(self.started, 0u);
    EXPECT_TRUE(self.lives());
    Client earlier = self;
    --earlier.started;
    EXPECT_FALSE(earlier.lives()) << "another process had this id before";

    const auto first = join(self);
    sessions_.left(self, volume, no_socket, false, now_);
    join(earlier);
    EXPECT_EQ(sessions_.find(self, volume, now_), first);
    sessions_.left(earlier, volume, no_socket, false, now_);
    EXPECT_EQ(sessions_.find(earlier, volume, now_), nullptr);
}

// A process of that id, which does nothing until it is killed; not positive: there is none.
pid_t process_with_id(pid_t id) {
    clone_args arguments{};
    arguments.exit_signal = SIGCHLD;
    arguments.set_tid = reinterpret_cast<uint64_t>(&id);
    arguments.set_tid_size = 1;
    const long made = ::syscall(SYS_clone3, &arguments, sizeof arguments);
    if (made != 0) return static_cast<pid_t>(made);
    for (;;) ::pause();
}

TEST_F(NbdSessions, a_process_that_got_the_id_of_a_client_that_is_gone_is_not_taken_for_it) {
    const ScratchDirectory directory;
    const std::string path = directory.path() / "socket";
    const UniqueFd listener = std::move(*listen_unix(path, 0600));
    const pid_t client = ::fork();
    if (client == 0) {
        const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const sockaddr_un address = *unix_address(path);
        ::_exit(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : 1);
    }
    int status = 1;
    ASSERT_EQ(::waitpid(client, &status, 0), client);
    ASSERT_EQ(status, 0);
    const pid_t other = process_with_id(client);
    if (other <= 0) GTEST_SKIP() << "needs to be root";
    EXPECT_NE(started_ticks("/proc/" + std::to_string(other)), 0u);
    const UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const Client seen = Client::of(accepted.get());
    EXPECT_EQ(seen.process, other);
    EXPECT_EQ(seen.started, 0u);
    EXPECT_FALSE(seen.lives());
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
}

// A connection of the client, whose end the test has.
struct Pair {
    Pair() {
        int pair[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        client = UniqueFd(pair[0]);
        server = UniqueFd(pair[1]);
    }
    UniqueFd client;
    UniqueFd server;
};

TEST_F(NbdSessions, those_wait_that_come_after_one_that_broke_and_in_their_order) {
    const std::unique_ptr<Loop> loop = std::move(*Loop::create());
    const auto session = std::make_shared<VolumeSession>();
    std::array<Pair, 4> pairs;
    std::vector<size_t> gone_on;
    const auto wait = [&](size_t i) -> Task<> {
        EXPECT_TRUE(co_await sessions_.wait_for_broken_ones(client_, volume, pairs[i].server.get()));
        gone_on.push_back(i);
    };
    const auto leave = [&](size_t i) { sessions_.left(client_, volume, pairs[i].server.get(), false, now_); };
    const auto run = [&]() -> Task<> {
        Gate gate;
        for (const Pair& pair : pairs) sessions_.joined(client_, volume, session, pair.server.get());
        for (size_t broken : {1, 2}) pairs[broken].client.reset();
        for (size_t i = 0; i < pairs.size(); ++i) gate.spawn(wait(i));
        EXPECT_EQ(gone_on, (std::vector<size_t>{0, 1}));
        leave(1);
        while (gone_on.size() < 3) co_await Yield(*loop);
        EXPECT_EQ(gone_on.back(), 2u);
        leave(2);
        co_await gate.close();
        EXPECT_EQ(gone_on.back(), 3u);
    };
    loop->run_until_done(run());
}

TEST_F(NbdSessions, a_bounded_number_of_those_who_left_is_remembered) {
    for (size_t i = 0; i < Sessions::remembered_max + 10; ++i) {
        const Client client{.address = std::to_string(i)};
        join(client);
        now_ += std::chrono::milliseconds(1);
        sessions_.left(client, volume, no_socket, false, now_);
    }
    EXPECT_EQ(sessions_.size(), Sessions::remembered_max);
    EXPECT_EQ(sessions_.find({.address = "0"}, volume, now_), nullptr);
    EXPECT_NE(sessions_.find({.address = "10"}, volume, now_), nullptr);
}

TEST_F(NbdSessions, who_is_connected_makes_no_room_for_those_who_left) {
    const auto first = join(client_);
    for (size_t i = 0; i < Sessions::remembered_max + 10; ++i) {
        const Client client{.address = std::to_string(i)};
        join(client);
        now_ += std::chrono::milliseconds(1);
        sessions_.left(client, volume, no_socket, false, now_);
    }
    EXPECT_EQ(sessions_.find(client_, volume, now_), first);
}

}  // namespace
}  // namespace tarn::nbd
