#include "coherence/pages/frame_queue.hpp"

#include <utility>

namespace tarn {

namespace {
void give_up(FrameWaiter& waiter) {
    waiter.gave_up = true;
    waiter.shard->post(waiter);
}
}  // namespace

void FrameQueue::append(FrameWaiter& waiter) {
    const std::lock_guard guard(lock_);
    if (closed_) return give_up(waiter);
    waiter.next_waiter = nullptr;
    (last_ ? last_->next_waiter : first_) = &waiter;
    last_ = &waiter;
    count_.fetch_add(1, std::memory_order_seq_cst);
}

bool FrameQueue::cancel(FrameWaiter& waiter) {
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

void FrameQueue::close() {
    const std::lock_guard guard(lock_);
    closed_ = true;
    while (first_) give_up(pop());
}

FrameWaiter& FrameQueue::pop() {
    FrameWaiter& waiter = *first_;
    first_ = waiter.next_waiter;
    if (!first_) last_ = nullptr;
    count_.fetch_sub(1, std::memory_order_seq_cst);
    return waiter;
}

}  // namespace tarn
