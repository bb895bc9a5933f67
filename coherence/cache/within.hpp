// within(): the result of a task, or an error when it takes too long or who waits is interrupted. The task then goes on
// alone, to no effect for us, and carries no interrupt.
//
// So it must refer to nothing that ends before its loop does, nor what its own references refer to.
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
struct Within {
    explicit Within(Loop& loop) : patience(loop) {}
    Timer patience;
    std::optional<Result<T>> result;

    static Task<> run(Task<Result<T>> task, std::shared_ptr<Within> self) {
        self->result = co_await std::move(task);
        self->patience.cancel();
    }
};

}  // namespace detail

inline constexpr std::chrono::milliseconds no_limit{0};

template <class T>
Task<Result<T>> within(std::chrono::milliseconds limit, Task<Result<T>> task) {
    Interrupt* const interrupt = co_await this_interrupt;
    Loop& loop = *Loop::current();
    const auto state = std::make_shared<detail::Within<T>>(loop);
    loop.spawn(detail::Within<T>::run(std::move(task), state));
    if (!state->result && !(interrupt && interrupt->raised())) {
        const Interrupt::Listener listener(interrupt, [&] { state->patience.cancel(); });
        (void)co_await state->patience.sleep(limit != no_limit ? limit : detail::for_ever);
    }
    if (state->result) co_return std::move(*state->result);
    if (interrupt && interrupt->raised()) co_return fail(Errc::cancelled, EINTR, "interrupted");
    co_return fail(Errc::unavailable, EIO, "a host did not answer within fail-after");
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
