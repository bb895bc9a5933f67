// Cache: the end of a volume. Nobody uses it any more on any host, and its id is not used twice.
//
// First the holders let go: an ordinary eviction of each page, but that what is dirty goes with it (Event::discard). As
// long as a page's home has not answered, a record of it stays; when none is left, no message about the volume is on
// its way from here any more. Only when that is so on all hosts do the homes forget their bytes and give back the
// space.
#include <algorithm>

#include "coherence/cache/cache.hpp"

namespace tarn {

// Leaves those that are still there. How many steps that took.
uint64_t Cache::discard_pages(std::vector<PageId>& pages) {
    const Fabric::Cork cork(fabric());
    uint64_t steps = 0;
    std::erase_if(pages, [&](PageId page) {
        Stripes::Turn turn(stripes_, page);
        turn.step(protocol::Event::discard_of(page));
        steps += turn.watched_steps();
        return !turn.holder().find(page);
    });
    return steps;
}

Task<Result<>> Cache::discard_volume(VolumeId volume) {
    CO_TRY(const VolumeTurns::Turn turn, co_await discarding_turns_.take(0));
    stripes_.watch(volume);
    std::vector<PageId> pages;
    stripes_.for_each([&](const Stripes::Turn& turn) {
        turn.holder().for_each([&](PageId page, const protocol::Holding&) {
            if (page.volume() == volume) pages.push_back(page);
        });
    });
    std::ranges::sort(pages);  // neighbours go in one message
    for (;;) {
        const uint64_t steps_before = stripes_.watched_steps();
        const uint64_t own_steps = discard_pages(pages);
        if (pages.empty() || abandoned()) break;
        // Each of them takes a step at least; to look at all of them for each step would take too long.
        const uint64_t enough = steps_before + own_steps + (pages.size() + 1) / 2;
        Broadcast& watched = stripes_.watched();
        for (uint64_t seen = watched.count(); stripes_.watched_steps() < enough && !abandoned(); seen = watched.count())
            co_await watched.next(seen);
    }
    stripes_.watch(0);
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
        Stripes::Turn turn(stripes_, page);
        if (homes_.find_exactly(page) != &frame) continue;
        if (frame.storing == Storing::no)
            turn.result().frames_freed |= forget_home_bytes(frame);
        else
            ++storing;
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
