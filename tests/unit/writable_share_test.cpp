#include "coherence/pages/writable_share.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace tarn {
namespace {

constexpr size_t frames = 4000;

struct Waiting final : FrameWaiter {
    using FrameWaiter::FrameWaiter;
    void run() override { went_on = !gave_up; }
    bool went_on = false;
};

class WritableShareTest : public testing::Test {
  protected:
    WritableShareTest() : loop_(std::move(*Loop::create())), share_(frames) {}
    size_t fill(HostId home) {
        while (share_.try_enter(home)) {
        }
        return share_.count(home);
    }
    // What was posted has run.
    void turn() { loop_->run_until_done(yield()); }
    Task<> yield() { co_await Yield(*loop_); }

    std::unique_ptr<Loop> loop_;
    WritableShare share_;
};

TEST_F(WritableShareTest, one_home_gets_three_quarters_and_the_next_one_of_what_is_left) {
    EXPECT_EQ(fill(1), frames / 4 * 3);
    EXPECT_EQ(fill(2), frames / 16 * 3);
    EXPECT_EQ(fill(1), frames / 4 * 3) << "others have taken of it";
    size_t of_all = share_.count(1) + share_.count(2);
    for (HostId home = 3; home < 6; ++home) {
        EXPECT_GT(fill(home), 0u);
        of_all += share_.count(home);
    }
    EXPECT_LT(of_all, frames);
}

TEST_F(WritableShareTest, a_page_that_is_writable_already_counts_beyond_the_share) {
    fill(1);
    share_.enter(1);
    share_.leave(1);
    EXPECT_FALSE(share_.try_enter(1));
    share_.leave(1);
    EXPECT_TRUE(share_.try_enter(1));
}

TEST_F(WritableShareTest, who_waits_enters_in_turn_as_others_leave) {
    fill(1);
    Waiting first(*loop_);
    Waiting second(*loop_);
    Waiting third(*loop_);
    for (Waiting* each : {&first, &second, &third}) share_.wait(*each, 1);
    EXPECT_TRUE(share_.cancel(second, 1));
    EXPECT_FALSE(share_.cancel(second, 1));
    share_.leave(1);
    turn();
    EXPECT_TRUE(first.went_on);
    EXPECT_FALSE(third.went_on);
    EXPECT_FALSE(share_.cancel(first, 1)) << "it has entered";
    share_.leave(1);
    turn();
    EXPECT_TRUE(third.went_on);
    EXPECT_FALSE(second.went_on);
    EXPECT_FALSE(share_.anyone_waits());
    EXPECT_EQ(share_.count(1), frames / 4 * 3);
}

TEST_F(WritableShareTest, what_one_home_gives_up_another_one_s_waiters_get) {
    fill(1);
    fill(2);
    Waiting waiting(*loop_);
    share_.wait(waiting, 2);
    turn();
    EXPECT_FALSE(waiting.went_on);
    share_.leave(1);
    share_.leave(1);
    turn();
    EXPECT_TRUE(waiting.went_on);
}

TEST_F(WritableShareTest, who_waits_although_there_is_room_enters_at_once) {
    Waiting waiting(*loop_);
    share_.wait(waiting, 1);
    turn();
    EXPECT_TRUE(waiting.went_on);
    EXPECT_EQ(share_.count(1), 1u);
}

TEST_F(WritableShareTest, a_home_is_crowded_before_it_is_full) {
    size_t entered = 0;
    while (!share_.is_crowded(1) && share_.try_enter(1)) ++entered;
    EXPECT_LT(entered, frames / 4 * 3);
    EXPECT_GT(entered, frames / 2);
    EXPECT_TRUE(share_.any_is_crowded(set_of(1) | set_of(2)));
    EXPECT_FALSE(share_.any_is_crowded(set_of(2)));
}

TEST_F(WritableShareTest, more_than_all_frames_leave_no_room) {
    for (size_t i = 0; i <= frames; ++i) share_.enter(1);
    EXPECT_FALSE(share_.try_enter(1));
    EXPECT_FALSE(share_.try_enter(2));
    EXPECT_TRUE(share_.is_crowded(1));
}

TEST_F(WritableShareTest, what_is_leaving_crowds_nobody_and_still_counts) {
    fill(1);
    EXPECT_TRUE(share_.is_crowded(1));
    for (size_t i = 0; i < frames / 8; ++i) share_.begin_leaving(1);
    EXPECT_FALSE(share_.is_crowded(1));
    EXPECT_FALSE(share_.try_enter(1));
    for (size_t i = 0; i < frames / 8; ++i) share_.stay(1);
    EXPECT_TRUE(share_.is_crowded(1));
}

TEST_F(WritableShareTest, at_the_end_all_give_up) {
    fill(1);
    Waiting before(*loop_);
    Waiting after(*loop_);
    share_.wait(before, 1);
    share_.close();
    share_.wait(after, 1);
    turn();
    EXPECT_TRUE(before.gave_up);
    EXPECT_TRUE(after.gave_up);
    EXPECT_EQ(share_.count(1), frames / 4 * 3);
}

// Each enters, or waits until it has, and leaves: nobody is forgotten, and the share holds.
TEST_F(WritableShareTest, threads_that_enter_wait_and_leave) {
    constexpr size_t few = 64;
    WritableShare share(few);
    struct Client final : FrameWaiter {
        Client(Loop& loop, WritableShare& all, HostId host) : FrameWaiter(loop), share(all), home(host) {}
        void begin() {
            if (share.try_enter(home)) return shard->post(*this);
            share.wait(*this, home);
        }
        void run() override {
            if (share.count(home) > few / 4 * 3) ++exceeded;
            share.leave(home);
            if (--rounds > 0) begin();
        }
        WritableShare& share;
        HostId home;
        int rounds = 100;
        int exceeded = 0;
    };
    using Clients = std::vector<std::unique_ptr<Client>>;
    struct Side {
        static Task<> all(Loop& loop, Clients& clients) {
            for (const auto& client : clients) client->begin();
            while (std::ranges::any_of(clients, [](const auto& each) { return each->rounds > 0; }))
                co_await Yield(loop);
        }
    };
    std::atomic<int> exceeded = 0;
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 2; ++i)
            threads.emplace_back([&] {
                const std::unique_ptr<Loop> loop = std::move(*Loop::create());
                Clients clients;
                for (unsigned k = 0; k < 100; ++k)
                    clients.push_back(std::make_unique<Client>(*loop, share, static_cast<HostId>(1 + k % 2)));
                loop->run_until_done(Side::all(*loop, clients));
                for (const auto& client : clients) exceeded += client->exceeded;
            });
    }
    EXPECT_EQ(exceeded, 0);
    EXPECT_EQ(share.count(1) + share.count(2), 0u);
    EXPECT_FALSE(share.anyone_waits());
}

}  // namespace
}  // namespace tarn
