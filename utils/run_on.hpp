// run_on: a task on another shard, awaited here. A coroutine never changes its thread.
#pragma once

#include <optional>
#include <utility>

#include "utils/loop.hpp"

namespace tarn {

namespace detail {

template <class T>
class RunOn final : public Loop::Posted {
  public:
    RunOn(Loop& here, Loop& there, Task<T> task) : here_(here), there_(there), task_(std::move(task)) {}
    bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
        waiter_ = handle;
        there_.post(*this);
    }
    T await_resume() { return std::move(*value_); }
    void run() override {
        if (value_) return waiter_.resume();
        there_.spawn(carry(*this));
    }

  private:
    static Task<> carry(RunOn& self) {
        std::optional<T> value(co_await std::move(self.task_));
        self.task_ = Task<T>();  // its frame goes on the shard that ran it
        self.value_ = std::move(value);
        self.here_.post(self);
    }
    Loop& here_;
    Loop& there_;
    Task<T> task_;
    std::optional<T> value_;
    std::coroutine_handle<> waiter_;
};

}  // namespace detail

// The task is made but not started here: what it captured must be safe to use over there.
// here: the loop of the calling coroutine, which may not run yet.
template <class T>
Task<T> run_on(Loop& here, Loop& there, Task<T> task) {
    if (&here == &there) co_return co_await std::move(task);
    detail::RunOn<T> run(here, there, std::move(task));
    co_return co_await run;
}

inline Task<> run_on(Loop& here, Loop& there, Task<> task) {
    struct Finish {
        static Task<bool> with_value(Task<> unvalued) {
            co_await std::move(unvalued);
            co_return true;
        }
    };
    co_await run_on(here, there, Finish::with_value(std::move(task)));
}

// From a loop that runs.
template <class T>
Task<T> run_on(Loop& there, Task<T> task) {
    TARN_ASSERT(Loop::current());
    co_return co_await run_on(*Loop::current(), there, std::move(task));
}

}  // namespace tarn
