// One question to several hosts: who answers, who fails and who hangs.
#include "coherence/fabric/call_all.hpp"

#include <gtest/gtest.h>

#include "tests/support/recording_fabric.hpp"
#include "utils/interrupt.hpp"

namespace tarn {
namespace {

using namespace std::chrono_literals;

// Host 1 answers at once, host 2 refuses, host 3 hangs until it is released, host 4 answers after a turn of the loop.
class FourHosts final : public RecordingFabric {
  public:
    Task<Result<std::string>> call(HostId to, CallKind, std::string request) override {
        ++calls;
        if (to == 2) co_return fail(Errc::refused);
        if (to == 3 && !released) co_await release.next(0);
        if (to == 4) co_await Yield(*Loop::current());
        co_return request + std::to_string(to);
    }
    void let_go() {
        released = true;
        release.announce();
    }
    unsigned calls = 0;
    bool released = false;
    Broadcast release;
};

class CallAll : public testing::Test {
  protected:
    ~CallAll() override {
        fabric_.let_go();
        loop_->run_until_done([](Loop& loop) -> Task<> { co_await Yield(loop); }(*loop_));
    }
    std::vector<HostAnswer> ask(std::vector<HostId> hosts, std::chrono::milliseconds timeout) {
        return loop_->run_until_done(call_all(fabric_, std::move(hosts), CallKind::usage, "host ", timeout));
    }
    std::unique_ptr<Loop> loop_ = std::move(*Loop::create());
    FourHosts fabric_;
};

TEST_F(CallAll, gives_the_answers_in_the_order_of_the_hosts) {
    const std::vector<HostAnswer> answers = ask({4, 2, 1}, 1h);
    ASSERT_EQ(answers.size(), 3u);
    EXPECT_EQ(answers[0].host, 4);
    EXPECT_EQ(*answers[0].said, "host 4");
    EXPECT_EQ(answers[1].said.error().code, Errc::refused);
    EXPECT_EQ(*answers[2].said, "host 1");
}

TEST_F(CallAll, of_nobody_ends_at_once) {
    EXPECT_TRUE(ask({}, 1h).empty());
}

TEST_F(CallAll, a_host_that_hangs_costs_the_others_nothing) {
    const std::vector<HostAnswer> answers = ask({3, 4}, 20ms);
    EXPECT_EQ(fabric_.calls, 2u);
    EXPECT_EQ(answers[0].said.error().code, Errc::unavailable);
    EXPECT_EQ(*answers[1].said, "host 4");
}

TEST_F(CallAll, an_interrupt_ends_the_waiting) {
    struct Part {
        static Task<> ask(Fabric& fabric, Interrupt& interrupt, std::vector<HostAnswer>& answers) {
            co_await CarryInterrupt(interrupt);
            answers = co_await call_all(fabric, {1, 3}, CallKind::usage, "host ", 1h);
        }
        static Task<> both(Fabric& fabric, std::vector<HostAnswer>& answers) {
            struct Raised final : Interrupt {
            } interrupt;
            Gate gate;
            gate.spawn(ask(fabric, interrupt, answers));
            interrupt.raise();
            co_await gate.close();
        }
    };
    std::vector<HostAnswer> answers;
    loop_->run_until_done(Part::both(fabric_, answers));
    ASSERT_EQ(answers.size(), 2u);
    EXPECT_EQ(*answers[0].said, "host 1");
    EXPECT_EQ(answers[1].said.error().code, Errc::unavailable);
}

}  // namespace
}  // namespace tarn
