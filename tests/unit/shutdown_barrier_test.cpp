// Hosts that stop at the same time: who waits for whom. The test plays the other hosts.
#include "daemon/process/shutdown_barrier.hpp"

#include "tests/unit/home_on_device.hpp"

namespace tarn::home_on_device {
namespace {

using namespace std::chrono_literals;

constexpr HostId other = 2;

class ShutdownBarrierTest : public HomeOnDevice {
  protected:
    ShutdownBarrierTest() {
        fabric_.on_call = [this](HostId to, CallKind kind, std::string) {
            told_.emplace_back(to, kind);
            return nothing();
        };
        fabric_.up = set_of(peer) | set_of(other);
    }
    ~ShutdownBarrierTest() override {
        cache_->abandon();
        loop_->run_until_done(tasks_.close());
        fabric_.on_call = {};
    }

    static Task<Result<std::string>> nothing() { co_return std::string(); }
    void hear(HostId from, CallKind kind) {
        EXPECT_TRUE(loop_->run_until_done(fabric_.calls().answer(kind, from, {})));
    }
    static Task<bool> pass(std::chrono::milliseconds time) {
        Timer timer(*Loop::current());
        co_return co_await timer.sleep(time);
    }
    // Longer than a host waits for others that are about to stop.
    void let_pass() { loop_->run_until_done(pass(400ms)); }
    void let_run() { loop_->run_until_done(turns(*loop_)); }
    void begin_to_wait() { tasks_.spawn(wait(*this)); }
    static Task<> wait(ShutdownBarrierTest& self) {
        co_await self.barrier_.say_flushed_and_wait();
        self.ended_ = true;
    }

    ShutdownBarrier barrier_{*cache_, {peer, other}};
    std::vector<std::pair<HostId, CallKind>> told_;
    bool ended_ = false;
    Gate tasks_;
};

TEST_F(ShutdownBarrierTest, tells_those_that_are_linked) {
    fabric_.up = set_of(other);
    loop_->run_until_done([](ShutdownBarrier& barrier) -> Task<bool> {
        barrier.say_stopping();
        co_return true;
    }(barrier_));
    begin_to_wait();
    let_run();
    EXPECT_EQ(told_,
              (std::vector<std::pair<HostId, CallKind>>{{other, CallKind::stopping}, {other, CallKind::flushed}}));
}

TEST_F(ShutdownBarrierTest, waits_for_nobody_without_links) {
    fabric_.up = 0;
    hear(peer, CallKind::stopping);
    begin_to_wait();
    EXPECT_TRUE(ended_);
    EXPECT_TRUE(told_.empty());
}

TEST_F(ShutdownBarrierTest, hosts_that_go_on_serving_are_not_waited_for) {
    begin_to_wait();
    let_pass();
    EXPECT_TRUE(ended_);
}

TEST_F(ShutdownBarrierTest, all_have_flushed) {
    for (const HostId host : {peer, other}) {
        hear(host, CallKind::stopping);
        hear(host, CallKind::flushed);
    }
    begin_to_wait();
    let_pass();
    EXPECT_TRUE(ended_);
}

TEST_F(ShutdownBarrierTest, one_that_has_not_flushed_is_waited_for) {
    hear(peer, CallKind::stopping);
    hear(peer, CallKind::stopping);  // once more is the same
    begin_to_wait();
    hear(other, CallKind::stopping);  // somewhat later than we
    let_pass();
    EXPECT_FALSE(ended_);
    hear(other, CallKind::flushed);
    hear(other, CallKind::flushed);
    let_run();
    EXPECT_FALSE(ended_) << "the other one's flush does not count for it";
    hear(peer, CallKind::flushed);
    let_run();
    EXPECT_TRUE(ended_);
}

TEST_F(ShutdownBarrierTest, one_that_dies_is_waited_for_no_more) {
    hear(peer, CallKind::stopping);
    begin_to_wait();
    let_pass();
    EXPECT_FALSE(ended_);
    fabric_.up = set_of(other);
    cache_->inbox().on_link_down(peer);
    let_run();
    EXPECT_TRUE(ended_);
    EXPECT_EQ(barrier_.gone(), HostSet{0}) << "it may not have what it was sent";
}

TEST_F(ShutdownBarrierTest, a_wait_ends_when_all_is_given_up) {
    hear(peer, CallKind::stopping);
    begin_to_wait();
    let_pass();
    EXPECT_FALSE(ended_);
    cache_->abandon();
    let_run();
    EXPECT_TRUE(ended_);
}

TEST_F(ShutdownBarrierTest, gone_is_who_flushed_and_left) {
    hear(peer, CallKind::stopping);
    EXPECT_EQ(barrier_.gone(), HostSet{0});
    hear(peer, CallKind::flushed);
    EXPECT_EQ(barrier_.gone(), HostSet{0}) << "it is still there";
    cut();
    EXPECT_EQ(barrier_.gone(), set_of(peer));
    peer_process_ = {.incarnation = 2, .epoch = 2};
    link();
    cut();
    EXPECT_EQ(barrier_.gone(), HostSet{0}) << "another process of it has not flushed";
}

}  // namespace
}  // namespace tarn::home_on_device
