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
    bool gave_up = false;  // posted with nothing, because of shutdown

  protected:
    ~FrameWaiter() = default;

  private:
    friend class FrameQueue;
    FrameWaiter* next_ = nullptr;
    FrameWaiter** link_ = nullptr;  // null: it is not queued
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
            FrameWaiter& waiter = *first_;
            remove(waiter);
            waiter.shard->post(waiter);
        }
    }
    // Makes all present and later waiters give up.
    void close();

  private:
    void remove(FrameWaiter& waiter);

    SpinLock lock_;
    FrameWaiter* first_ = nullptr;
    FrameWaiter** end_ = &first_;  // the last one's next_
    Atomic<size_t> count_{0};
    bool closed_ = false;
};

}  // namespace tarn
