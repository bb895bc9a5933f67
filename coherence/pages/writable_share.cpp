#include "coherence/pages/writable_share.hpp"

#include <algorithm>
#include <bit>

namespace tarn {

namespace {
constexpr size_t share_of_rest = 3;
}

WritableShare::WritableShare(size_t frame_count)
    : frame_count_(frame_count), margin_(std::clamp<size_t>(frame_count / 64, 16, 1024)) {}

bool WritableShare::fits(size_t of_home, size_t of_all) const {
    return of_all <= frame_count_ && of_home <= share_of_rest * (frame_count_ - of_all);
}

bool WritableShare::try_enter(HostId home) {
    size_t count = counts_[home].load(std::memory_order_seq_cst);
    do {
        if (!fits(count + 1, total_.load(std::memory_order_seq_cst) + 1)) return false;
    } while (!counts_[home].compare_exchange_weak(count, count + 1, std::memory_order_seq_cst));
    total_.fetch_add(1, std::memory_order_seq_cst);
    return true;
}

void WritableShare::enter(HostId home) {
    counts_[home].fetch_add(1, std::memory_order_seq_cst);
    total_.fetch_add(1, std::memory_order_seq_cst);
}

void WritableShare::leave(HostId home) {
    TARN_ASSERT(counts_[home].fetch_sub(1, std::memory_order_seq_cst) > 0);
    total_.fetch_sub(1, std::memory_order_seq_cst);
    if (anyone_waits()) serve();
}

void WritableShare::wait(FrameWaiter& waiter, HostId home) {
    waiting_.fetch_add(1, std::memory_order_seq_cst);
    queues_[home].append(waiter);
    serve();  // there may be room again since it was looked for
}

bool WritableShare::cancel(FrameWaiter& waiter, HostId home) {
    if (!queues_[home].cancel(waiter)) return false;
    waiting_.fetch_sub(1, std::memory_order_seq_cst);
    return true;
}

void WritableShare::let_in_all(HostId home) {
    queues_[home].serve([&](FrameWaiter&) {
        enter(home);
        waiting_.fetch_sub(1, std::memory_order_seq_cst);
        return true;
    });
}

void WritableShare::serve() {
    for (HostId home = 0; home < hosts_max; ++home) {
        queues_[home].serve([&](FrameWaiter&) {
            if (!try_enter(home)) return false;
            waiting_.fetch_sub(1, std::memory_order_seq_cst);
            return true;
        });
    }
}

void WritableShare::close() {
    for (FrameQueue& queue : queues_) queue.close();
}

void WritableShare::begin_leaving(HostId home) {
    leaving_[home].fetch_add(1, std::memory_order_relaxed);
    total_leaving_.fetch_add(1, std::memory_order_relaxed);
}

void WritableShare::stay(HostId home) {
    TARN_ASSERT(leaving_[home].fetch_sub(1, std::memory_order_relaxed) > 0);
    total_leaving_.fetch_sub(1, std::memory_order_relaxed);
}

// The counts change meanwhile, and may be inconsistent for a moment.
bool WritableShare::is_crowded(HostId home) const {
    const auto without = [](const Atomic<size_t>& all, const Atomic<size_t>& part) {
        const size_t left = part.load(std::memory_order_relaxed);
        const size_t count = all.load(std::memory_order_relaxed);
        return count - std::min(left, count);
    };
    const size_t count = without(counts_[home], leaving_[home]);
    return count != 0 && !fits(count + margin_, without(total_, total_leaving_) + margin_);
}

bool WritableShare::any_is_crowded(HostSet homes) const {
    for (; homes != 0; homes &= homes - 1)
        if (is_crowded(static_cast<HostId>(std::countr_zero(homes)))) return true;
    return false;
}

}  // namespace tarn
