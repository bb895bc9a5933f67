// When a shard looks for what comes before it sleeps; and that a loop which does so stops for other threads.
#include "daemon/process/polling.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "utils/cpu_set.hpp"
#include "utils/loop.hpp"

namespace tarn {
namespace {

using namespace std::chrono_literals;

class PollingTest : public testing::Test {
  protected:
    bool polls_after(Polling::Window window) {
        window.time = 100ms;
        now_ += window.time;
        return polling_.next(window, now_) > 0ns;
    }
    // Windows until it polls; 0: it does not come to that within two minutes.
    int windows_until_it_polls(const Polling::Window& window) {
        for (int count = 1; count <= 1200; ++count)
            if (polls_after(window)) return count;
        return 0;
    }

    // Clients elsewhere that wait for each answer; and what they do once it polls.
    static constexpr Polling::Window waiting{.run = 30ms, .work = 1000, .is_joined = true};
    static constexpr Polling::Window faster{.run = 99ms, .work = 1300, .is_joined = true};
    static constexpr Polling::Window as_before{.run = 99ms, .work = 1200, .is_joined = true};

    Polling polling_;
    Polling::Clock::time_point now_ = Polling::Clock::time_point{} + 1h;
};

TEST_F(PollingTest, it_goes_on_while_more_is_served_and_compares_anew) {
    EXPECT_TRUE(polls_after(waiting));
    for (int i = 0; i < 79; ++i) EXPECT_TRUE(polls_after(faster)) << i;
    EXPECT_FALSE(polls_after(faster)) << "it compares";
    EXPECT_TRUE(polls_after(waiting));
}

TEST_F(PollingTest, what_does_not_pay_ends_and_is_tried_later_and_later) {
    std::vector<int> pauses;
    ASSERT_TRUE(polls_after(waiting));
    for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(polls_after(as_before)) << "the clients settle";
        EXPECT_FALSE(polls_after(as_before));
        pauses.push_back(windows_until_it_polls(waiting));
    }
    EXPECT_EQ(pauses, (std::vector<int>{3, 5, 10, 20}));
}

TEST_F(PollingTest, it_ends_as_soon_as_another_thread_wants_the_cpu) {
    ASSERT_TRUE(polls_after(waiting));
    Polling::Window contended = faster;
    contended.is_contended = true;
    EXPECT_FALSE(polls_after(contended));
    EXPECT_FALSE(polls_after(waiting)) << "later";
}

TEST_F(PollingTest, it_ends_with_the_traffic_and_begins_again_at_once) {
    ASSERT_TRUE(polls_after(waiting));
    EXPECT_FALSE(polls_after({.run = 1ms, .work = 10, .is_joined = true}));
    EXPECT_TRUE(polls_after(waiting));
}

TEST_F(PollingTest, it_is_not_tried_for_clients_on_the_shards_cpu_or_one_that_is_not_joined_or_has_no_time_left) {
    Polling::Window window = waiting;
    window.near_wake_ups = 200;
    EXPECT_FALSE(polls_after(window));
    window.near_wake_ups = 100;
    window.is_joined = false;
    EXPECT_FALSE(polls_after(window));
    window.is_joined = true;
    window.delay = 51ms;
    EXPECT_FALSE(polls_after(window));
    window.delay = 49ms;
    EXPECT_TRUE(polls_after(window));
}

TEST_F(PollingTest, rare_requests_are_not_worth_it) {
    EXPECT_FALSE(polls_after({.run = 1ms, .work = 399, .is_joined = true}));
    EXPECT_TRUE(polls_after({.run = 1ms, .work = 400, .is_joined = true}));
}

// A loop that is joined to a CPU, on which a thread of the test runs, too.
class PollingLoop : public testing::Test {
  protected:
    struct Count final : Loop::Posted {
        void run() override { done.store(true); }
        std::atomic<bool> done{false};
    };
    struct Start final : Loop::Posted {
        void run() override { Loop::current()->look_before_sleep(1h); }
    };
    void SetUp() override {
        cpus_ = *CpuSet::of_thread();
        if (cpus_.size() < 2) GTEST_SKIP() << "needs two CPUs";
        thread_ = std::thread([this] {
            EXPECT_TRUE(CpuSet({cpus_.list()[0]}).bind());
            loop_->run();
        });
    }
    void TearDown() override {
        if (!thread_.joinable()) return;
        loop_->stop();
        thread_.join();
    }
    void call() {
        Count count;
        loop_->post(count);
        while (!count.done.load()) std::this_thread::yield();
    }

    CpuSet cpus_;
    std::unique_ptr<Loop> loop_ = std::move(*Loop::create());
    std::thread thread_;
    Start start_;
};

TEST_F(PollingLoop, it_serves_calls_without_a_sleep_and_lets_another_thread_have_its_cpu) {
    loop_->post(start_);
    call();
    std::atomic<bool> ran{false};
    std::thread other([&] {
        EXPECT_TRUE(CpuSet({cpus_.list()[0]}).bind());
        const auto until = std::chrono::steady_clock::now() + 50ms;
        while (std::chrono::steady_clock::now() < until) continue;
        ran.store(true);
    });
    other.join();
    EXPECT_TRUE(ran.load());
    call();
    loop_->stop();
    thread_.join();
    EXPECT_TRUE(loop_->is_contended()) << "it went on looking while another thread wanted the CPU";
}

TEST(LookingLoop, ends_it_when_nothing_comes_many_times) {
    const std::unique_ptr<Loop> loop = std::move(*Loop::create());
    const auto rest = [](Loop& loop) -> Task<> {
        loop.look_before_sleep(1us);
        EXPECT_TRUE(loop.looks_before_sleep());
        // Each of these sleeps is longer than a look.
        for (int i = 0; i < 100 && loop.looks_before_sleep(); ++i) co_await loop.sleep(1ms);
        EXPECT_FALSE(loop.looks_before_sleep());
    };
    loop->run_until_done(rest(*loop));
}

}  // namespace
}  // namespace tarn
