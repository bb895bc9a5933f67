// WriteStage: a write is put here whole before it changes a frame, so that a process which is killed half-way leaves a
// write that the next one can finish. A frame torn in place would have no good contents to fall back to. Bytes that lie
// in the arena's landing memory are not copied here: the stage says where they are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tiers/page.hpp"
#include "utils/atomic.hpp"

namespace tarn {

struct alignas(64) WriteStage {
    enum class Pending : uint32_t { nothing, bytes, zeros, landed };

    Atomic<bool> taken{false};  // by a thread of the present process
    Atomic<Pending> pending{Pending::nothing};
    FrameId frame = no_frame;
    uint64_t page = 0;
    uint32_t offset = 0;
    uint32_t size = 0;
    uint64_t receipt = 0;    // to be written with it (write_receipts.hpp), or 0
    uint64_t landed_at = 0;  // landed: in Arena::landing()
    alignas(64) std::byte bytes[page_size];
};
static_assert(sizeof(WriteStage) == 64 + page_size, "as in arenas without landing memory");

}  // namespace tarn
