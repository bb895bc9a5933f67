#include "coherence/pages/frame_queue.hpp"

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
    waiter.next_ = nullptr;
    waiter.link_ = end_;
    *end_ = &waiter;
    end_ = &waiter.next_;
    count_.fetch_add(1, std::memory_order_seq_cst);
}

bool FrameQueue::cancel(FrameWaiter& waiter) {
    const std::lock_guard guard(lock_);
    if (waiter.link_ == nullptr) return false;
    remove(waiter);
    return true;
}

void FrameQueue::close() {
    const std::lock_guard guard(lock_);
    closed_ = true;
    while (first_) {
        FrameWaiter& waiter = *first_;
        remove(waiter);
        give_up(waiter);
    }
}

void FrameQueue::remove(FrameWaiter& waiter) {
    *waiter.link_ = waiter.next_;
    (waiter.next_ ? waiter.next_->link_ : end_) = waiter.link_;
    waiter.link_ = nullptr;
    count_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace tarn
