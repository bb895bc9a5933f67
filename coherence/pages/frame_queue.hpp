// FrameQueue: accesses that wait for a frame, or for permission to ask for one. First come, first served. Any thread
// may call it; a served access is posted to its shard.
#pragma once

#include <mutex>

#include "tiers/page.hpp"
#include "utils/atomic.hpp"
#include "utils/loop.hpp"
#include "utils/spinlock.hpp"

namespace tarn {

class FrameWaiter : public Loop::Posted {
  public:
    explicit FrameWaiter(Loop& loop) : shard(&loop) {}
    Loop* shard;
    FrameId frame = no_frame;
    FrameWaiter* next_waiter = nullptr;
    bool gave_up = false;  // posted with nothing, because of shutdown

  protected:
    ~FrameWaiter() = default;
};

class FrameQueue {
  public:
    bool empty() const { return count_.load(std::memory_order_seq_cst) == 0; }

    void append(FrameWaiter& waiter);
    // False: it is not queued any more, but was posted.
    bool cancel(FrameWaiter& waiter);
    // Posts the first waiters, as long as give(waiter) succeeds.
    template <class Give>
    void serve(Give&& give) {
        if (empty()) return;
        const std::lock_guard guard(lock_);
        while (first_ && give(*first_)) {
            FrameWaiter& waiter = pop();
            waiter.shard->post(waiter);
        }
    }
    // Makes all present and later waiters give up.
    void close();

  private:
    FrameWaiter& pop();

    SpinLock lock_;
    FrameWaiter* first_ = nullptr;
    FrameWaiter* last_ = nullptr;
    Atomic<size_t> count_{0};
    bool closed_ = false;
};

}  // namespace tarn
