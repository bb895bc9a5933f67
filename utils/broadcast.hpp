// Broadcast: an Event that coroutines of any loop may wait for, and any thread may announce.
//
//     for (uint64_t seen = changed.count(); !condition(); seen = changed.count()) co_await changed.next(seen);
//
// The count is read before the condition: an announcement in between is not missed.
#pragma once

#include <mutex>
#include <utility>

#include "utils/atomic.hpp"
#include "utils/loop.hpp"
#include "utils/spinlock.hpp"

namespace tarn {

class Broadcast {
  public:
    Broadcast() = default;
    Broadcast(const Broadcast&) = delete;
    ~Broadcast() { TARN_ASSERT(!first_); }

    uint64_t count() const { return count_.load(std::memory_order_acquire); }

    // Everybody who waits goes on, each on its own loop.
    void announce() {
        Next* woken = nullptr;
        {
            const std::lock_guard guard(lock_);
            count_.fetch_add(1, std::memory_order_release);
            woken = std::exchange(first_, nullptr);
        }
        while (woken) {
            Next& waiter = *std::exchange(woken, woken->after_);
            waiter.loop_.post(waiter);
        }
    }

    // Until the count is no longer `seen`.
    class [[nodiscard]] Next final : public Loop::Posted {
      public:
        Next(Broadcast& broadcast, uint64_t seen, Loop& loop) : broadcast_(broadcast), seen_(seen), loop_(loop) {}
        bool await_ready() const noexcept { return broadcast_.count() != seen_; }
        bool await_suspend(std::coroutine_handle<> handle) {
            waiter_ = handle;
            const std::lock_guard guard(broadcast_.lock_);
            if (broadcast_.count() != seen_) return false;
            after_ = std::exchange(broadcast_.first_, this);
            return true;
        }
        void await_resume() const noexcept {}
        void run() override { waiter_.resume(); }

      private:
        friend class Broadcast;
        Broadcast& broadcast_;
        uint64_t seen_;
        Loop& loop_;
        std::coroutine_handle<> waiter_;
        Next* after_ = nullptr;
    };
    Next next(uint64_t seen) { return {*this, seen, *Loop::current()}; }
    Next next(uint64_t seen, Loop& loop) { return {*this, seen, loop}; }

  private:
    SpinLock lock_;
    Atomic<uint64_t> count_{0};
    Next* first_ = nullptr;
};

}  // namespace tarn
