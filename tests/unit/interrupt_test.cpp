#include "utils/interrupt.hpp"

#include <gtest/gtest.h>

#include "utils/with_timeout.hpp"

namespace tarn {
namespace {

using namespace std::chrono_literals;

class OwnInterrupt final : public Interrupt {
  public:
    explicit OwnInterrupt(unsigned& awaited) : awaited_(awaited) {}

  private:
    void on_awaited() override { ++awaited_; }
    unsigned& awaited_;
};

Task<Interrupt*> carried() {
    co_return co_await this_interrupt;
}
Task<Interrupt*> carried_deeper() {
    co_return co_await carried();
}

TEST(Interrupt, goes_with_the_tasks_that_are_awaited) {
    const auto loop = std::move(*Loop::create());
    unsigned awaited = 0;
    OwnInterrupt interrupt(awaited);
    struct Run {
        static Task<Interrupt*> with(Interrupt& interrupt) {
            EXPECT_EQ(co_await carried_deeper(), nullptr);
            co_await CarryInterrupt(interrupt);
            co_return co_await carried_deeper();
        }
    };
    EXPECT_EQ(loop->run_until_done(Run::with(interrupt)), &interrupt);
    EXPECT_EQ(awaited, 0u) << "nobody listened";
}

TEST(Interrupt, is_heard_once_by_each_who_listens_and_by_nobody_who_left) {
    unsigned awaited = 0;
    unsigned heard = 0;
    OwnInterrupt interrupt(awaited);
    {
        const Interrupt::Listener gone(&interrupt, [&] { heard += 100; });
    }
    const Interrupt::Listener first(&interrupt, [&] { heard += 1; });
    const Interrupt::Listener second(&interrupt, [&] { heard += 10; });
    interrupt.raise();
    interrupt.raise();
    EXPECT_EQ(heard, 11u);
    EXPECT_TRUE(interrupt.raised());
    EXPECT_EQ(awaited, 1u);
}

TEST(Interrupt, may_end_by_what_it_ends) {
    unsigned awaited = 0;
    auto interrupt = std::make_unique<OwnInterrupt>(awaited);
    const Interrupt::Listener listener(interrupt.get(), [&] { interrupt.reset(); });
    interrupt->raise();
    EXPECT_EQ(interrupt, nullptr);
}

Task<Result<int>> never(Event& event) {
    co_await event.wait();
    co_return 1;
}

TEST(Interrupt, ends_the_wait_for_a_task_that_goes_on_alone) {
    const auto loop = std::move(*Loop::create());
    unsigned awaited = 0;
    OwnInterrupt interrupt(awaited);
    Event event;
    struct Run {
        static Task<> raise_soon(Loop& loop, Interrupt& interrupt) {
            co_await Yield(loop);
            interrupt.raise();
        }
        static Task<> with(Loop& loop, Interrupt& interrupt, Event& event) {
            Gate gate;
            gate.spawn(raise_soon(loop, interrupt));
            co_await CarryInterrupt(interrupt);
            const Result<int> first = co_await interruptible(never(event));
            EXPECT_FALSE(first);
            if (!first) EXPECT_EQ(first.error().code, Errc::cancelled);
            const Result<int> second = co_await with_timeout(1h, never(event));  // it was raised before
            EXPECT_FALSE(second);
            event.notify_all();  // nobody is left behind
            co_await gate.close();
        }
    };
    loop->run_until_done(Run::with(*loop, interrupt, event));
}

// As an access to a page does.
Task<Result<int>> until_interrupted(Event& event) {
    Interrupt* const interrupt = co_await this_interrupt;
    EXPECT_NE(interrupt, nullptr);
    const Interrupt::Listener listener(interrupt, [&] { event.notify_all(); });
    if (!interrupt->raised()) co_await event.wait();
    co_return fail(Errc::cancelled, EINTR, "test");
}
Task<Result<int>> at_once() {
    co_return 7;
}

TEST(Interrupt, nothing_is_begun_on_a_loop_that_ends) {
    const auto loop = std::move(*Loop::create());
    bool is_over = false;
    const auto late = [](Loop& on, bool& over) -> Task<> {
        while (!on.ending()) co_await Yield(on);
        const Result<int> result = co_await with_timeout(1h, at_once());
        EXPECT_FALSE(result);
        if (!result) EXPECT_EQ(result.error().code, Errc::cancelled);
        over = true;
    };
    loop->spawn(late(*loop, is_over));
    loop->stop();
    loop->run();
    EXPECT_TRUE(is_over);
}

TEST(Interrupt, is_raised_when_a_condition_ends_and_not_for_what_is_done_by_then) {
    const auto loop = std::move(*Loop::create());
    Event event;
    struct Run {
        static Task<> with(Event& event) {
            EXPECT_EQ(co_await as_long_as([] { return false; }, at_once()), 7);
            unsigned looks = 0;
            const Result<int> result = co_await as_long_as([&] { return ++looks < 3; }, until_interrupted(event));
            EXPECT_FALSE(result);
            if (!result) EXPECT_EQ(result.error().code, Errc::cancelled);
            EXPECT_EQ(looks, 3u);
        }
        static Task<> interrupted(Loop& loop, Interrupt& interrupt, Event& event) {
            Gate gate;
            struct Raise {
                static Task<> soon(Loop& loop, Interrupt& interrupt) {
                    co_await Yield(loop);
                    interrupt.raise();
                }
            };
            gate.spawn(Raise::soon(loop, interrupt));
            co_await CarryInterrupt(interrupt);
            EXPECT_FALSE(co_await as_long_as([] { return true; }, until_interrupted(event)));
            EXPECT_FALSE(co_await as_long_as([] { return true; }, until_interrupted(event))) << "raised before";
            co_await gate.close();
        }
    };
    loop->run_until_done(Run::with(event));
    unsigned awaited = 0;
    OwnInterrupt interrupt(awaited);
    loop->run_until_done(Run::interrupted(*loop, interrupt, event));
}

}  // namespace
}  // namespace tarn
