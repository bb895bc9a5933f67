// FrameQueue: accesses that wait for a frame, or for leave to ask for one. First come, first served. Any thread may call
// it; who is served is posted to its shard.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include "tiers/page.hpp"
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

    void append(FrameWaiter& waiter) {
        const std::lock_guard guard(lock_);
        if (closed_) return give_up(waiter);
        waiter.next_waiter = nullptr;
        (last_ ? last_->next_waiter : first_) = &waiter;
        last_ = &waiter;
        count_.fetch_add(1, std::memory_order_seq_cst);
    }
    // False: it is not here any more, and was posted.
    bool cancel(FrameWaiter& waiter) {
        const std::lock_guard guard(lock_);
        FrameWaiter* previous = nullptr;
        FrameWaiter* each = first_;
        while (each && each != &waiter) previous = std::exchange(each, each->next_waiter);
        if (!each) return false;
        (previous ? previous->next_waiter : first_) = waiter.next_waiter;
        if (last_ == &waiter) last_ = previous;
        count_.fetch_sub(1, std::memory_order_seq_cst);
        return true;
    }
    // Posts the first ones, for as long as give(waiter) has something for them.
    template <class Give>
    void serve(Give&& give) {
        if (empty()) return;
        const std::lock_guard guard(lock_);
        while (first_ && give(*first_)) {
            FrameWaiter& waiter = pop();
            waiter.shard->post(waiter);
        }
    }
    // Whoever waits gives up, and whoever comes.
    void close() {
        const std::lock_guard guard(lock_);
        closed_ = true;
        while (first_) give_up(pop());
    }

  private:
    FrameWaiter& pop() {
        FrameWaiter& waiter = *first_;
        first_ = waiter.next_waiter;
        if (!first_) last_ = nullptr;
        count_.fetch_sub(1, std::memory_order_seq_cst);
        return waiter;
    }
    static void give_up(FrameWaiter& waiter) {
        waiter.gave_up = true;
        waiter.shard->post(waiter);
    }

    SpinLock lock_;
    FrameWaiter* first_ = nullptr;
    FrameWaiter* last_ = nullptr;
    std::atomic<size_t> count_{0};
    bool closed_ = false;
};

}  // namespace tarn
