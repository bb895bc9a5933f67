// Frame: the header of one page-sized slot of DRAM. The bytes lie in the pool's arena, at the same index.
#pragma once

#include <cstdint>

#include "tiers/dram/frame_word.hpp"
#include "tiers/page.hpp"
#include "utils/atomic.hpp"

namespace tarn {

// What a frame is taken for; a frame with no use is free. Changed under the latch of the page's stripe, and a frame
// gets its page before its use: who holds the latch of P, sees use_home and then finds P, has P's home frame.
enum FrameUse : uint8_t {
    use_holder = 1 << 0,  // named by a Holder, or a message's payload: what this host caches, waits for, or keeps
    use_home = 1 << 1,    // home's bytes of a page homed here
};

// Home's bytes on their way into the store.
enum class Storing : uint8_t {
    no,
    begun,
    taken,  // the store has them as they are now: its next flush makes them durable
};

struct alignas(64) Frame {
    FrameWord word;
    Atomic<uint64_t> page{0};             // PageId; changes only while the word is unreadable
    Atomic<FrameId> next{no_frame};       // chain of the table of cached pages, or of the free list
    Atomic<FrameId> home_next{no_frame};  // chain of the table of home's bytes
    Atomic<uint32_t> access_epoch{0};     // when it was last used, by the coarse clock of replacement
    Atomic<DirtyMask> dirty{0};           // sectors that home lacks; set by writers under the exclusive latch
    Atomic<DirtyMask> writing{0};         // sectors of the write-back on its way to home
    Atomic<uint8_t> uses{0};              // of FrameUse
    Atomic<bool> zeroed{false};           // all zeros by a trim, and nothing written since: takes no space

    Atomic<uint32_t> lost{0};  // the loss generation in which the page last lost writes, 0: never

    Atomic<bool> broken{false};  // the store could not read it: every access but a whole write fails

    Atomic<bool> cached{false};  // in the table of cached pages; changes under the latch of the page's stripe

    Atomic<bool> writable{false};  // this host may write the page, or could when it let it go; guarded as cached

    // The rest is guarded by the latch of the page's stripe.
    bool home_dirty = false;  // home's bytes that the store may not have durably
    Storing storing = Storing::no;
    DirtyMask home_mask = 0;    // when home_dirty: sectors that may differ from what the store was given; 0: any
    uint32_t home_version = 0;  // grows with each change of home's bytes
    uint32_t home_sequence = 0;
    Tenure home_tenure = 0;  // of home's bytes

    PageId page_id() const { return {page.load(std::memory_order_relaxed)}; }
};
static_assert(sizeof(Frame) == 64, "one cache line a frame: 1.6 % of the page it describes");

}  // namespace tarn
