// The one number `memory`: how the process's memory is divided, so that all of it stays within that number.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tiers/page.hpp"

namespace tarn {

// CPUs that this process may run on.
inline unsigned usable_cpu_count() {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    if (::sched_getaffinity(0, sizeof cpus, &cpus) != 0) return 1;
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&cpus)));
}

// What is not a page: code, heap, rings, buffers of connections and links. Measured, with room to spare.
inline constexpr uint64_t fixed_bytes = uint64_t{8} << 20;
inline constexpr uint64_t bytes_per_shard = uint64_t{1} << 20;
// Beside its page a frame has its header, its places in the tables, the Holder's record and the Home's claim.
inline constexpr uint64_t bytes_per_frame = page_size + 512;

inline size_t frame_count_for(uint64_t memory_bytes, size_t shard_count) {
    const uint64_t fixed = fixed_bytes + bytes_per_shard * shard_count;
    return static_cast<size_t>(std::max(memory_bytes, 2 * fixed) - fixed) / bytes_per_frame;
}

}  // namespace tarn
