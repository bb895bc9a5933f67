// TARN_ASSERT: an invariant of ours, checked in release builds too. A failure is a bug in tarn and ends the process.
//
// Never used on input: what a disk, a peer or a client sends is checked and refused with an Error (result.hpp).
#pragma once

namespace tarn {

[[noreturn]] void assertion_failed(const char* expression, const char* file, int line) noexcept;

}  // namespace tarn

#define TARN_ASSERT(expression)                                        \
    do {                                                               \
        if (!(expression)) [[unlikely]]                                \
            ::tarn::assertion_failed(#expression, __FILE__, __LINE__); \
    } while (false)
