#include "frontends/volumes/read_ahead.hpp"

#include <algorithm>
#include <mutex>

namespace tarn {

ReadAhead::Range ReadAhead::on_read(uint64_t offset_bytes, uint64_t size_bytes) {
    const std::lock_guard guard(lock_);
    const uint64_t end = offset_bytes + size_bytes;
    // What is in flight beside this read, and what lies ahead, is part of the sequence.
    const uint64_t slack = std::max(window_, size_bytes * 8);
    const bool follows = end + slack > next_ && offset_bytes <= std::max(next_, ahead_end_) + slack;
    if (!follows) {
        sequential_ = 1;
        window_ = 0;
        next_ = end;
        ahead_end_ = end;
        marker_.store(no_marker, std::memory_order_relaxed);
        return {};
    }
    next_ = std::max(next_, end);
    ahead_end_ = std::max(ahead_end_, next_);
    if (++sequential_ < sequential_reads_min || window_max_ < window_min) return {};
    if (window_ != 0 && ahead_end_ >= next_ + window_ / 2) return {};
    window_ = std::clamp(window_ * 2, window_min, window_max_);
    const Range range{.offset_bytes = ahead_end_, .size_bytes = next_ + window_ - ahead_end_};
    ahead_end_ = next_ + window_;
    marker_.store(ahead_end_ - window_ / 2, std::memory_order_relaxed);
    return range;
}

}  // namespace tarn
