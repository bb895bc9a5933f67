// Cache::with_frame(): what a woken access does to its page. For PageAccess.
#pragma once

#include <sched.h>
#include <xmmintrin.h>

#include "coherence/cache/cache.hpp"

namespace tarn {

template <class Function>
void Cache::with_frame(FrameId id, bool writing, Function&& fn) {
    Frame& frame = pool_->frame(id);
    std::byte* const bytes = pool_->bytes(id);
    for (;; _mm_pause()) {
        const FrameWord::Value seen = frame.word.load();
        if ((seen & FrameWord::ownership_mask) == FrameWord::none) return fn(frame, bytes);  // blank, and ours alone
        if (writing ? frame.word.try_latch_exclusive(seen) : frame.word.try_pin(seen)) break;
        if (FrameWord::latched(seen)) ::sched_yield();  // somebody is inside, for microseconds
    }
    const PageId page = frame.page_id();
    fn(frame, bytes);
    replacement_.touch(frame);
    const bool quiet = writing ? frame.word.unlatch_exclusive() : frame.word.unpin();
    if (quiet) report_quiet(frame, page);
}

}  // namespace tarn
