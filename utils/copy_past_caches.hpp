// A copy to memory that is in no cache of the CPU, and that nobody reads soon.
//
// An ordinary store first reads the cache line that it is about to overwrite, and keeps it. These stores do neither:
// the copy is faster, and what other work has in the caches stays there.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "utils/assert.hpp"

namespace tarn {

// Whole cache lines: the size and the target are multiples of 64 bytes.
inline void copy_past_caches(std::byte* into, const std::byte* from, size_t size) {
    constexpr size_t line_size = 64;
    TARN_ASSERT(reinterpret_cast<uintptr_t>(into) % line_size == 0 && size % line_size == 0);
    for (size_t line = 0; line < size; line += line_size) {
        const auto* const source = reinterpret_cast<const __m128i*>(from + line);
        auto* const target = reinterpret_cast<__m128i*>(into + line);
        const __m128i parts[] = {_mm_loadu_si128(source), _mm_loadu_si128(source + 1), _mm_loadu_si128(source + 2),
                                 _mm_loadu_si128(source + 3)};
        for (size_t i = 0; i < 4; ++i) _mm_stream_si128(target + i, parts[i]);
    }
}

// Before another thread may see the copies: no release store orders them.
inline void order_copies_past_caches() {
    _mm_sfence();
}

}  // namespace tarn
