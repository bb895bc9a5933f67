// on_thread: a function that blocks, on a thread of its own, awaited by a coroutine of a loop.
//
// For system calls that may block for long, which must not hold up the loop. The coroutine waits for the function's
// end, so the function may refer to its locals. Where no thread can be started it waits until one can.
#pragma once

#include <optional>
#include <thread>
#include <utility>

#include "utils/loop.hpp"
#include "utils/start_thread.hpp"

namespace tarn {

namespace detail {

template <class Function>
class OnThread final : public Loop::Posted {
  public:
    using Value = std::invoke_result_t<Function&>;

    OnThread(Loop& loop, Function function) : loop_(loop), function_(std::move(function)) {}
    // On the loop. False: there is no thread now.
    bool start() {
        std::optional<std::thread> thread = start_thread([this] {
            value_ = function_();
            loop_.post(*this);
        });
        if (!thread) return false;
        thread_ = *std::move(thread);
        return true;
    }
    // In the same turn, so that the loop has not run what the thread posts.
    bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) { waiter_ = handle; }
    Value await_resume() { return std::move(*value_); }
    void run() override {
        thread_.join();
        waiter_.resume();
    }

  private:
    Loop& loop_;
    Function function_;
    std::optional<Value> value_;
    std::thread thread_;
    std::coroutine_handle<> waiter_;
};

}  // namespace detail

// From a loop that runs.
template <class Function>
Task<std::invoke_result_t<Function&>> on_thread(Function function) {
    detail::OnThread<Function> run(*Loop::current(), std::move(function));
    for (int tries = 1; !run.start(); ++tries) {
        warn_of_no_thread(tries);
        co_await Loop::current()->sleep(thread_retry);
    }
    co_return co_await run;
}

}  // namespace tarn
