// ReadAhead: notices that a session reads in sequence, and says what to bring in before it is asked for.
//
// Pure: no clock, no I/O. A session that misses where its last reads ended is sequential; each time it comes to the
// middle of what was brought in, the window that lies ahead doubles, up to 4 MiB. A miss elsewhere ends it, so random
// reads bring in nothing. Requests of one session may be in flight together and come a little out of order.
//
// Any thread. The hot path looks only at at_marker().
#pragma once

#include <atomic>
#include <cstdint>

#include "utils/spinlock.hpp"

namespace tarn {

class ReadAhead {
  public:
    static constexpr uint64_t window_min = 128 << 10;
    static constexpr uint64_t window_max = 4 << 20;

    struct Range {
        uint64_t offset_bytes = 0;
        uint64_t size_bytes = 0;  // 0: nothing to bring in
    };

    // limit_bytes: what may lie ahead at most, if that is less than window_max.
    explicit ReadAhead(uint64_t limit_bytes) : window_max_(limit_bytes < window_max ? limit_bytes : window_max) {}

    // Whether on_read() wants to know of this read although it hit.
    bool at_marker(uint64_t offset_bytes, uint64_t size_bytes) const {
        const uint64_t marker = marker_.load(std::memory_order_relaxed);
        return offset_bytes <= marker && marker < offset_bytes + size_bytes;
    }
    // After a read that missed, or was at the marker.
    Range on_read(uint64_t offset_bytes, uint64_t size_bytes);

  private:
    static constexpr uint64_t no_marker = ~uint64_t{0};
    static constexpr unsigned sequential_reads_min = 3;

    const uint64_t window_max_;
    SpinLock lock_;
    uint64_t next_ = 0;        // where the furthest read ended
    uint64_t ahead_end_ = 0;   // up to where was brought in
    uint64_t window_ = 0;      // 0: not sequential, as far as we know
    unsigned sequential_ = 0;  // reads in a row
    std::atomic<uint64_t> marker_{no_marker};
};

}  // namespace tarn
