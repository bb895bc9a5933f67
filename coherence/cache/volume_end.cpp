// Cache: the end of a volume. Nobody uses it any more on any host, and its id is not used twice.
//
// First the holders let go: an ordinary eviction of each page, but that what is dirty goes with it (Event::discard). As
// long as a page's home has not answered, a record of it stays; when none is left, no message about the volume is on
// its way from here any more. Only when that is so on all hosts do the homes forget their bytes and give back the
// space.
#include <algorithm>

#include "coherence/cache/cache.hpp"

namespace tarn {

void Cache::count_discard_steps(uint64_t count) {
    discard_steps_.fetch_add(count, std::memory_order_relaxed);
    discarded_.announce();
}

// Leaves those that are still there.
size_t Cache::discard_pages(std::vector<PageId>& pages) {
    const Fabric::Cork cork(fabric_);
    std::erase_if(pages, [&](PageId page) {
        Deferred deferred;
        bool is_gone = false;
        {
            StripeSlot& slot = slot_of(page);
            const std::lock_guard guard(slot.latch);
            step_latched(slot, protocol::Event::discard_of(page), deferred);
            is_gone = !slot.stripe.holder().find(page);
        }
        deferred.discard_steps = 0;  // by us
        finish(deferred);
        return is_gone;
    });
    return pages.size();
}

Task<Result<>> Cache::discard_volume(VolumeId volume) {
    CO_TRY(const VolumeTurns::Turn turn, co_await discarding_turns_.take(0));
    discarding_.store(volume, std::memory_order_relaxed);
    std::vector<PageId> pages;
    for (const auto& slot : stripes_) {
        const std::lock_guard guard(slot->latch);
        slot->stripe.holder().for_each([&](PageId page, const protocol::Holding&) {
            if (page.volume() == volume) pages.push_back(page);
        });
    }
    std::ranges::sort(pages);  // neighbours go in one message
    for (;;) {
        const uint64_t steps = discard_steps_.load(std::memory_order_relaxed);
        const size_t left = discard_pages(pages);
        if (left == 0 || abandoned()) break;
        // Each of them takes a step at least; to look at all of them for each step would take too long.
        for (uint64_t seen = discarded_.count();
             discard_steps_.load(std::memory_order_relaxed) - steps < (left + 1) / 2 && !abandoned();
             seen = discarded_.count())
            co_await discarded_.next(seen);
    }
    discarding_.store(0, std::memory_order_relaxed);
    if (abandoned()) co_return fail(Errc::cancelled, 0, "volume.discard");
    co_return Result<>{};
}

// How many of its frames are on their way into the store.
size_t Cache::forget_volume_bytes(VolumeId volume) {
    size_t storing = 0;
    for (FrameId id = 0; id < pool_->frame_count(); ++id) {
        Frame& frame = pool_->frame(id);
        const PageId page = frame.page_id();
        if (page.volume() != volume || (frame.uses.load(std::memory_order_relaxed) & use_home) == 0) continue;
        Deferred deferred;
        {
            const std::lock_guard guard(slot_of(page).latch);
            if (homes_.find_exactly(page) != &frame) continue;
            if (frame.storing == Storing::no)
                deferred.frames_freed |= forget_home_bytes(frame);
            else
                ++storing;
        }
        finish(deferred);
    }
    return storing;
}

Task<Result<>> Cache::erase_volume(VolumeId volume) {
    CO_TRY_VOID(co_await recovered());
    for (uint64_t seen = stored_.count(); forget_volume_bytes(volume) > 0; seen = stored_.count()) {
        if (abandoned()) co_return fail(Errc::cancelled, 0, "volume.erase");
        co_await stored_.next(seen);
    }
    CO_TRY_VOID(co_await store_.drop_volume(*Loop::current(), volume));
    co_await marker_.forget(volume);
    co_return Result<>{};
}

}  // namespace tarn
