#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontends/nbd/sessions.hpp"
#include "utils/unique_fd.hpp"

namespace tarn::nbd {
namespace {

constexpr VolumeId volume = 3;

class NbdSessions : public testing::Test {
  protected:
    std::shared_ptr<VolumeSession> join(const Client& client) {
        std::shared_ptr<VolumeSession> session = sessions_.find(client, volume, now_);
        if (!session) session = std::make_shared<VolumeSession>();
        return sessions_.joined(client, volume, session);
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

TEST_F(NbdSessions, of_two_that_come_at_once_the_second_takes_what_the_first_has) {
    const auto first = std::make_shared<VolumeSession>();
    const auto second = std::make_shared<VolumeSession>();
    EXPECT_EQ(sessions_.joined(client_, volume, first), first);
    EXPECT_EQ(sessions_.joined(client_, volume, second), first);
    sessions_.left(client_, volume, true, now_);
    EXPECT_EQ(sessions_.size(), 0u) << "the second has not joined yet";
}

TEST_F(NbdSessions, one_that_breaks_off_finds_its_session_again_for_ten_minutes) {
    const auto first = join(client_);
    sessions_.left(client_, volume, false, now_);
    now_ += Sessions::remembered_for - std::chrono::seconds(1);
    EXPECT_EQ(join(client_), first);
    sessions_.left(client_, volume, false, now_);
    now_ += Sessions::remembered_for;
    EXPECT_EQ(sessions_.find(client_, volume, now_), nullptr);
}

TEST_F(NbdSessions, it_ends_when_the_last_connection_says_so) {
    const auto first = join(client_);
    EXPECT_EQ(join(client_), first);
    sessions_.left(client_, volume, true, now_);
    EXPECT_EQ(sessions_.find(client_, volume, now_), first) << "the other one is there";
    sessions_.left(client_, volume, true, now_);
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
    sessions_.left(self, volume, false, now_);
    join(earlier);
    EXPECT_EQ(sessions_.find(self, volume, now_), first);
    sessions_.left(earlier, volume, false, now_);
    EXPECT_EQ(sessions_.find(earlier, volume, now_), nullptr);
}

TEST_F(NbdSessions, a_bounded_number_of_those_who_left_is_remembered) {
    for (size_t i = 0; i < Sessions::remembered_max + 10; ++i) {
        const Client client{.address = std::to_string(i)};
        join(client);
        now_ += std::chrono::milliseconds(1);
        sessions_.left(client, volume, false, now_);
    }
    EXPECT_EQ(sessions_.size(), Sessions::remembered_max);
    EXPECT_EQ(sessions_.find({.address = "0"}, volume, now_), nullptr);
    EXPECT_NE(sessions_.find({.address = "10"}, volume, now_), nullptr);
}

}  // namespace
}  // namespace tarn::nbd
