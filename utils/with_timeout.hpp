// with_timeout(), interruptible(): the result of a task, or an error when it takes too long or the waiting task is
// interrupted. The task then runs on by itself; its result is dropped, and it carries no interrupt.
//
// So everything it refers to must live as long as its loop does; on a loop that ends it is not begun, and the error is
// cancelled.
#pragma once

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>

#include "utils/interrupt.hpp"
#include "utils/loop.hpp"
#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

namespace detail {

constexpr std::chrono::hours for_ever{24 * 365};

template <class T>
struct WithTimeout {
    explicit WithTimeout(Loop& loop) : timeout(loop) {}
    Timer timeout;
    std::optional<Result<T>> result;

    static Task<> run(Task<Result<T>> task, std::shared_ptr<WithTimeout> self) {
        self->result = co_await std::move(task);
        self->timeout.cancel();
    }
};

}  // namespace detail

inline constexpr std::chrono::milliseconds no_limit{0};

template <class T>
Task<Result<T>> with_timeout(std::chrono::milliseconds limit, Task<Result<T>> task) {
    Interrupt* const interrupt = co_await this_interrupt;
    Loop& loop = *Loop::current();
    if (loop.ending()) co_return fail(Errc::cancelled, 0, "the daemon stops");  // the task might outlive the loop
    const auto state = std::make_shared<detail::WithTimeout<T>>(loop);
    loop.spawn(detail::WithTimeout<T>::run(std::move(task), state));
    if (!state->result && !(interrupt && interrupt->raised())) {
        const Interrupt::Listener listener(interrupt, [&] { state->timeout.cancel(); });
        (void)co_await state->timeout.sleep(limit != no_limit ? limit : detail::for_ever);
    }
    if (state->result) co_return std::move(*state->result);
    if (interrupt && interrupt->raised()) co_return fail(Errc::cancelled, EINTR, "interrupted");
    co_return fail(Errc::unavailable, EIO, "a host did not answer within fail-after");
}

// As with_timeout(), without a limit of time.
template <class T>
Task<Result<T>> interruptible(Task<Result<T>> task) {
    return with_timeout(no_limit, std::move(task));
}

namespace detail {

template <class T>
struct AsLongAs final : Interrupt {
    explicit AsLongAs(Loop& loop) : timer(loop) {}
    Timer timer;
    std::optional<Result<T>> result;

    static Task<> run(AsLongAs& self, Task<Result<T>> task) {
        co_await CarryInterrupt(self);
        self.result = co_await std::move(task);
        self.timer.cancel();
    }
    template <class Condition>
    static Task<> watch(AsLongAs& self, Condition& condition) {
        constexpr std::chrono::milliseconds step{50};
        while (!self.result && condition()) (void)co_await self.timer.sleep(step);
        if (!self.result) self.raise();
    }
};

}  // namespace detail

// The result of a task, which is interrupted when the condition holds no more, or who waits is interrupted: errors as
// its own, cancelled among them. What the task awaits must listen (see Interrupt). The condition is looked at time and
// again.
template <class T, class Condition>
Task<Result<T>> as_long_as(Condition condition, Task<Result<T>> task) {
    using State = detail::AsLongAs<T>;
    Interrupt* const outer = co_await this_interrupt;
    State state(*Loop::current());
    const Interrupt::Listener listener(outer, [&] { state.raise(); });
    if (outer && outer->raised()) state.raise();
    Gate gate;
    gate.spawn(State::run(state, std::move(task)));
    if (!state.result) gate.spawn(State::watch(state, condition));  // as a rule it has ended at once
    co_await gate.close();
    co_return std::move(*state.result);
}

}  // namespace tarn
