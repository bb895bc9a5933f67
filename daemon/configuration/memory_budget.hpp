// The one number `memory`: how the process's memory is divided, so that all of it stays within that number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tiers/page.hpp"

namespace tarn {

// What is not a page: code, heap, rings, buffers of connections and links. Measured, with room to spare.
inline constexpr uint64_t fixed_bytes = uint64_t{8} << 20;
inline constexpr uint64_t bytes_per_shard = uint64_t{2} << 20;
// Beside its page a frame has its header, its record, its places in the tables, and what Holder and Home know of it.
inline constexpr uint64_t bytes_per_frame = page_size + 616;

// The part of `memory` that requests of NBD clients may hold: one sixteenth.
inline constexpr uint64_t requests_part = 16;
inline uint64_t requests_bytes(uint64_t memory_bytes) {
    return memory_bytes / requests_part;
}

// Fewer frames than this make no cache.
inline constexpr size_t frame_count_min = 1024;

// What is no frame, whatever `memory` is. store_books_bytes: what the store's books may grow to.
inline uint64_t set_aside_bytes(size_t shard_count, uint64_t store_books_bytes) {
    return fixed_bytes + bytes_per_shard * shard_count + store_books_bytes;
}
// The least `memory` that leaves room for frames.
inline uint64_t memory_min(size_t shard_count, uint64_t store_books_bytes) {
    const uint64_t least = set_aside_bytes(shard_count, store_books_bytes) + frame_count_min * bytes_per_frame;
    return least + least / (requests_part - 1) + 1;
}
// memory_bytes: at least memory_min().
inline size_t frame_count_for(uint64_t memory_bytes, size_t shard_count, uint64_t store_books_bytes) {
    const uint64_t left_bytes = memory_bytes - requests_bytes(memory_bytes);
    return static_cast<size_t>((left_bytes - set_aside_bytes(shard_count, store_books_bytes)) / bytes_per_frame);
}

}  // namespace tarn
