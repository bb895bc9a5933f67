#include "coherence/pages/page_provider.hpp"

#include <algorithm>
#include <utility>

#include "coherence/pages/frame_supply.hpp"

namespace tarn {

namespace {
constexpr size_t batch_max = 128;
constexpr size_t piece_max = 16;  // more would delay requests while their device idles
constexpr auto pause_min = std::chrono::microseconds(200);
constexpr auto pause_max = std::chrono::microseconds(12'800);
constexpr auto relief_pause_max = std::chrono::microseconds(409'600);
}  // namespace

PageProvider::PageProvider(const Parts& parts, std::span<Loop* const> shards)
    : parts_(parts),
      reserve_count_(std::clamp<size_t>(parts.pool.frame_count() / 64, 32, 4096)),
      low_mark_(reserve_count_ + std::max<size_t>(64, parts.pool.frame_count() / 50)),
      high_mark_(low_mark_ + std::max<size_t>(64, parts.pool.frame_count() / 50)),
      shards_(shards) {
    TARN_ASSERT(high_mark_ < parts.pool.frame_count());
}

void PageProvider::kick() {
    Shard* const shard = shards_.here();
    if (!shard || std::exchange(shard->is_providing, true)) return;
    Loop::current()->spawn(provide(*shard));
}

// Ignores their age: old pages that could go have gone.
void PageProvider::drop_clean(Shard& shard, size_t count) {
    FramePool& pool = parts_.pool;
    const Fabric::Cork cork(parts_.peers.fabric());
    for (size_t i = 0; i < pool.frame_count() && count > 0; ++i) {
        shard.hand = (shard.hand + 1) % pool.frame_count();
        if (parts_.evictor.drop_clean(static_cast<FrameId>(shard.hand), false)) --count;
    }
}

// Another host knows what a volume is, and may be unreachable when somebody opens the volume. So these pages stay,
// however old, in at most a sixteenth of the frames: there may be very many volumes.
bool PageProvider::is_spared(Shard& shard, FrameId id) {
    const PageId page = parts_.pool.frame(id).page_id();
    if (!describes_volumes(page) || parts_.membership.home_of(page) == parts_.membership.self()) return false;
    if (id <= shard.spared_last) shard.spared_count = 0;
    shard.spared_last = id;
    return shard.spared_count++ < parts_.pool.frame_count() / 16;
}

Task<> PageProvider::provide(Shard& shard) {
    Loop& loop = *Loop::current();
    FramePool& pool = parts_.pool;
    co_await Yield(loop);  // the caller of kick() may hold a latch
    unsigned tenths = 1;
    auto pause = pause_min;
    while (pool.free_count() < high_mark_ && !parts_.evictor.abandoned()) {
        const size_t free_before = pool.free_count();
        std::vector<FrameId> to_store;
        size_t picked = 0;
        const Replacement::Threshold threshold = parts_.pages.replacement().threshold_of(tenths);
        for (size_t more = piece_max; more == piece_max && picked < batch_max;) {
            if (picked > 0) co_await Yield(loop);
            const Fabric::Cork cork(parts_.peers.fabric());  // evictions of a piece are one message to each home
            more = parts_.pages.replacement().pick(piece_max, threshold, [&](FrameId id) {
                return !is_spared(shard, id) && parts_.evictor.try_evict(id, to_store);
            });
            picked += more;
        }
        std::ranges::sort(to_store, {}, [&](FrameId id) { return pool.frame(id).page_id(); });
        // A failed write keeps its pages dirty; the flush that needs them says so (D6).
        const bool stored = to_store.empty() || co_await parts_.evictor.evict_home_bytes(std::move(to_store));
        if (stored && picked > 0) pause = pause_min;
        if (stored && pool.free_count() > free_before) {
            tenths = 1;
            co_await Yield(loop);
        } else if (stored && picked == 0 && tenths < 10) {
            // The oldest pages may be those that cannot go, of an unreachable home: then others must.
            tenths = std::min(tenths * 2, 10u);
            co_await Yield(loop);
        } else {
            if (parts_.membership.any_store_failed()) {
                // The rest is dirty, and stays so: it is tried again when somebody needs a frame.
                parts_.evictor.check_store_failure();
                parts_.supply.freed();
                if (picked == 0 && !parts_.supply.anyone_waits()) break;
            }
            // Pages that wait for a silent home must not block accesses that do not need that home (C4).
            if (pause == pause_max && parts_.supply.anyone_waits()) drop_clean(shard, batch_max);
            // Evictions wait for other hosts, or frames are pinned, or the store fails. Many things end that, some on
            // the hot path, which announces nothing: so look again, soon while something is under way.
            co_await loop.sleep(pause);
            pause = std::min(pause * 2, pause_max);
        }
    }
    shard.is_providing = false;
}

Task<> PageProvider::give_up_all() {
    constexpr FrameId at_once = 1024;
    for (FrameId id = 0; id < parts_.pool.frame_count() && !parts_.evictor.abandoned();) {
        {
            const Fabric::Cork cork(parts_.peers.fabric());
            for (const FrameId end = id + at_once; id < end && id < parts_.pool.frame_count(); ++id)
                (void)parts_.evictor.drop_clean(id, true);
        }
        co_await Yield(*Loop::current());
    }
}

void PageProvider::relieve() {
    Shard* const shard = shards_.here();
    if (!shard || std::exchange(shard->is_relieving, true)) return;
    Loop::current()->spawn(relieve_homes(*shard));
}

bool PageProvider::try_relieve(FrameId id) {
    const Frame& frame = parts_.pool.frame(id);
    std::vector<FrameId> to_store;  // stays empty: the pages are other homes'
    return frame.writable.load(std::memory_order_relaxed) &&
           parts_.writable_share.is_crowded(parts_.membership.home_of(frame.page_id())) &&
           parts_.evictor.try_evict(id, to_store);
}

Task<> PageProvider::relieve_homes(Shard& shard) {
    Loop& loop = *Loop::current();
    co_await Yield(loop);  // as in provide()
    const WritableShare& share = parts_.writable_share;
    unsigned tenths = 1;
    auto pause = pause_min;
    while (!parts_.evictor.abandoned() && share.any_is_crowded(parts_.membership.host_set())) {
        size_t picked = 0;
        {
            const Replacement::Threshold threshold = parts_.pages.replacement().threshold_of(tenths);
            const Fabric::Cork cork(parts_.peers.fabric());
            picked = parts_.pages.replacement().pick(piece_max, threshold, [&](FrameId id) { return try_relieve(id); });
        }
        if (picked > 0 || tenths < 10) {
            if (picked == 0) tenths = std::min(tenths * 2, 10u);
            pause = pause_min;
            co_await Yield(loop);
        } else {
            // All are pinned, or held, or the link is congested. Nobody announces the end of that.
            if (!share.anyone_waits()) break;
            co_await loop.sleep(pause);
            pause = std::min(pause * 2, relief_pause_max);
        }
    }
    shard.is_relieving = false;
}

}  // namespace tarn
