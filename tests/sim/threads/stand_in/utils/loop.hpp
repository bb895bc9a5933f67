// Loop as the model of threads has it: what is posted is kept as in every loop; where a loop waits for its ring, the
// thread sleeps until it is woken.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "utils/assert.hpp"
#include "utils/posted_calls.hpp"
#include "utils/sync.hpp"
#include "utils/task.hpp"

namespace tarn {

class Loop {
  public:
    using Posted = PostedCalls::Call;

    Loop() = default;
    Loop(const Loop&) = delete;
    ~Loop() { std::ranges::replace(current_, this, nullptr); }

    // The loop of the present thread is the one that it last attached.
    static Loop* current() noexcept { return current_[threads::current_thread()]; }
    void attach() { current_[threads::current_thread()] = this; }

    void post(Posted& call) {
        if (posted_.add(call) && current() != this) wakeup_.wake();
    }
    void turn() {
        if (posted_.begin_sleep()) wakeup_.sleep();
        posted_.end_sleep();
        posted_.run_all();
    }
    void spawn(Task<> task) { gate_.spawn(std::move(task)); }
    static bool ending() { return false; }
    bool has_tasks() const { return gate_.count() != 0; }

  private:
    inline static std::array<Loop*, threads::threads_max> current_{};

    PostedCalls posted_;
    threads::Wakeup wakeup_;
    Gate gate_;
};

class [[nodiscard]] Yield final : public Loop::Posted {
  public:
    explicit Yield(Loop& loop) : loop_(loop) {}
    bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
        handle_ = handle;
        loop_.post(*this);
    }
    void await_resume() noexcept {}
    void run() override { handle_.resume(); }

  private:
    Loop& loop_;
    std::coroutine_handle<> handle_;
};

}  // namespace tarn
