#include "coherence/cache/volume_end.hpp"

#include <algorithm>

namespace tarn {

// Leaves in `pages` those that are still there. Returns the number of steps.
uint64_t VolumeEnd::discard_pages(std::vector<PageId>& pages) {
    const Fabric::Cork cork(parts_.peers.fabric());
    uint64_t steps = 0;
    std::erase_if(pages, [&](PageId page) {
        Stripes::Turn turn(parts_.stripes, page);
        turn.step(protocol::Event::discard_of(page));
        steps += turn.watched_steps();
        return !turn.holder().find(page);
    });
    return steps;
}

Task<Result<>> VolumeEnd::discard(VolumeId volume) {
    CO_TRY(const VolumeTurns::Turn turn, co_await turns_.take(0));
    parts_.stripes.watch(volume);
    std::vector<PageId> pages;
    parts_.stripes.for_each([&](const Stripes::Turn& turn) {
        turn.holder().for_each([&](PageId page, const protocol::Holding&) {
            if (page.volume() == volume) pages.push_back(page);
        });
    });
    std::ranges::sort(pages);  // neighbours go in one message
    for (;;) {
        const uint64_t steps_before = parts_.stripes.watched_steps();
        const uint64_t own_steps = discard_pages(pages);
        if (pages.empty() || parts_.stripes.abandoned()) break;
        // Each page needs at least one more step; looking at all pages after each step would take too long.
        const uint64_t enough = steps_before + own_steps + (pages.size() + 1) / 2;
        Broadcast& watched = parts_.stripes.watched();
        for (uint64_t seen = watched.count(); parts_.stripes.watched_steps() < enough && !parts_.stripes.abandoned();
             seen = watched.count())
            co_await watched.next(seen);
    }
    parts_.stripes.watch(0);
    if (parts_.stripes.abandoned()) co_return fail(Errc::cancelled, 0, "volume.discard");
    co_return Result<>{};
}

Task<Result<>> VolumeEnd::erase(VolumeId volume) {
    CO_TRY_VOID(co_await parts_.home_start.ended());
    for (uint64_t seen = parts_.writer.stored().count(); parts_.home.forget_volume(volume) > 0;
         seen = parts_.writer.stored().count()) {
        if (parts_.stripes.abandoned()) co_return fail(Errc::cancelled, 0, "volume.erase");
        co_await parts_.writer.stored().next(seen);
    }
    CO_TRY_VOID(co_await parts_.store.drop_volume(*Loop::current(), volume));
    co_await parts_.marker.forget(volume);
    co_return Result<>{};
}

}  // namespace tarn
