// Home's bytes on their way into the store: batches of frames, groups, what is left at the end.
//
// A frame is `storing` from the moment a batch takes it until the store's flush that covers it, or its failure. Its
// bytes may change meanwhile; its version tells, and then it stays dirty.
#include <algorithm>
#include <cstring>

#include "coherence/cache/cache.hpp"
#include "tiers/nvme/device/page_buffer.hpp"

namespace tarn {

using protocol::Action;

namespace {

constexpr size_t run_pages_max = 64;  // written at once
// Of the pool, what one flush may have written and not made durable yet: so long none of it can be given up.
constexpr size_t unsettled_fraction = 4;

}  // namespace

// The bytes of a home frame as they are at one moment, and which of its sectors may differ from what the store was
// given. A local owner may be writing the very frame: what it wrote so far and did not write back yet is in the bytes,
// so it is in the mask, too. Writers change both under the frame's latch.
DirtyMask Cache::snapshot(Frame& frame, std::byte* into) {
    const std::byte* const bytes = pool_->bytes(pool_->id_of(frame));
    const auto copy = [&] {
        std::memcpy(into, bytes, page_size);
        if (frame.home_mask == 0) return all_sectors;
        return static_cast<DirtyMask>(frame.home_mask | Pages::unwritten(frame));
    };
    for (;;) {
        const FrameWord::Value seen = frame.word.load();
        if ((seen & FrameWord::exclusive) != 0) {
            ::sched_yield();
        } else if (FrameWord::readable(seen)) {
            if (!frame.word.try_pin(seen)) continue;
            const DirtyMask mask = copy();
            // Only the holder of this stripe's latch makes a frame busy, and that is us.
            TARN_ASSERT(!frame.word.unpin());
            return mask;
        } else {
            return copy();  // nobody can latch it
        }
    }
}

Task<Result<>> Cache::write_home_bytes(std::vector<FrameId> ids, Atomicity atomicity, std::vector<Stored>& stored) {
    Loop& loop = *Loop::current();
    const PageBuffer bounce = make_page_buffer(ids.size());
    std::vector<PageWrite> writes;
    std::vector<PageId> zeros;
    writes.reserve(ids.size());
    for (const FrameId id : ids) {
        Frame& frame = pool_->frame(id);
        const PageId page = frame.page_id();
        const auto latch = stripes_.latch(page);
        TARN_ASSERT(frame.storing == Storing::begun && frame.home_dirty);
        stored.push_back({.frame = id, .version = frame.home_version});
        if (frame.zeroed.load(std::memory_order_relaxed)) {
            zeros.push_back(page);
            continue;
        }
        std::byte* const bytes = bounce.get() + writes.size() * page_size;
        const DirtyMask dirty = snapshot(frame, bytes);
        writes.push_back({.page = page,
                          .tenure = frame.home_tenure,
                          .sequence = frame.home_sequence,
                          .dirty = dirty,
                          .bytes = bytes});
    }
    counters_.store_writes.fetch_add(writes.size(), std::memory_order_relaxed);
    const size_t before = stored.size() - ids.size();
    Result<> result;
    if (!writes.empty()) result = co_await store_.write(loop, writes, atomicity);
    for (const PageId page : zeros)
        if (const Result<> zeroed = co_await store_.zero(loop, page, 1); !zeroed && result) result = zeroed;
    if (!result) co_return result;
    for (const auto& [id, version] : std::span(stored).subspan(before)) {
        Frame& frame = pool_->frame(id);
        const auto latch = stripes_.latch(frame.page_id());
        if (frame.home_version == version) frame.storing = Storing::taken;
    }
    co_return result;
}

// Only what is durable may leave the memory: what the store has not flushed yet dies with the process, the frames do
// not (D2).
Task<Result<>> Cache::settle_stored(std::vector<Stored>& stored, Result<> result, bool free_after) {
    if (result) result = co_await store_.flush(*Loop::current());
    bool freed = false;
    for (const auto& [id, version] : stored) {
        Frame& frame = pool_->frame(id);
        const auto latch = stripes_.latch(frame.page_id());
        frame.storing = Storing::no;
        if (result && frame.home_version == version) {
            frame.home_dirty = false;
            home_dirty_frames_.remove(id);
            if (free_after && frame.uses.load(std::memory_order_relaxed) == use_home) freed |= forget_home_bytes(frame);
        }
    }
    stored.clear();
    if (freed) supply_.freed();
    stored_.announce();
    heed_store_failure();
    co_return result;
}

// Only what is in the store durably, and cannot be changed unseen.
PieceRest Cache::rest_of(PageId piece, bool gives_up) {
    constexpr uint64_t block_pages = uint64_t{1} << FrameIndex::block_bits;  // they share a stripe
    static_assert(piece_pages % block_pages == 0);
    PieceRest rest;
    for (uint64_t first = 0; first < piece_pages && rest.is_stored; first += block_pages) {
        Stripes::Turn turn(stripes_, PageId{piece.value + first});
        const protocol::Home& home = turn.home();
        for (uint64_t i = first; i < first + block_pages; ++i) {
            const PageId page{piece.value + i};
            if (const Frame* const frame = homes_.find_exactly(page)) {
                rest.changes += frame->home_version;
                rest.is_stored &= !frame->home_dirty;
            }
            if (home.has_everything(page)) continue;
            const protocol::Claim* const claim = home.find(page);
            const Frame* const own = claim && claim->owner == self() ? pages_.index().find_exactly(page) : nullptr;
            if (own && !Pages::is_dirty(*own)) {
                if (gives_up) turn.step(protocol::Event::evict_at_once(page));
                rest.is_free &= home.has_everything(page);
                // It may have been written to until this moment, and those bytes are home's now.
                const Frame* const left = homes_.find_exactly(page);
                rest.is_stored &= !left || !left->home_dirty;
            } else {
                rest.is_stored = false;
            }
        }
    }
    return rest;
}

Task<Result<>> Cache::evict_home_bytes(std::vector<FrameId> ids) {
    std::vector<Stored> stored;
    const Result<> written = co_await write_home_bytes(std::move(ids), Atomicity::page, stored);
    co_return co_await settle_stored(stored, written, true);
}

Task<Result<>> Cache::store_volume(VolumeId volume) {
    std::vector<PageId> pages;
    home_dirty_frames_.for_each([&](FrameId id) {
        const PageId page = pool_->frame(id).page_id();
        if (page.volume() == volume) pages.push_back(page);
    });
    // In their order, so that neighbours become one write.
    std::sort(pages.begin(), pages.end());
    return store_pages(std::move(pages));
}

// Of pages homed here. The protocol is not stepped any more, so that they come home by hand.
void Cache::bring_own_writes_home() {
    std::vector<FrameId> written;
    pages_.dirty_frames().for_each([&](FrameId id) {
        if (home_of(pool_->frame(id).page_id()) == self()) written.push_back(id);
    });
    for (const FrameId id : written) {
        Frame& frame = pool_->frame(id);
        Stripes::Turn turn(stripes_, frame.page_id());
        const protocol::Holding* const holding = turn.holder().find(frame.page_id());
        if (holding == nullptr || holding->frame != id) continue;
        Action copy;
        copy.kind = Action::Kind::apply_copy;
        copy.page = frame.page_id();
        copy.tenure = holding->tenure;
        copy.sequence = holding->sequence + 1;
        copy.mask = Pages::unwritten(frame);
        copy.frame = id;
        copy.borrowed = true;
        turn.result().frames_freed |= apply_copy(copy);
        frame.dirty.store(0, std::memory_order_relaxed);
        frame.writing.store(0, std::memory_order_relaxed);
        pages_.dirty_frames().remove(id);
    }
}

std::vector<VolumeId> Cache::dirty_volumes() {
    std::vector<VolumeId> volumes;
    const auto add = [&](FrameId id) {
        const VolumeId volume = pool_->frame(id).page_id().volume();
        if (std::ranges::find(volumes, volume) == volumes.end()) volumes.push_back(volume);
    };
    pages_.dirty_frames().for_each(add);
    home_dirty_frames_.for_each(add);
    return volumes;
}

Task<Result<>> Cache::store_rest() {
    TARN_ASSERT(abandoned());
    bring_own_writes_home();
    std::vector<PageId> pages;
    home_dirty_frames_.for_each([&](FrameId id) { pages.push_back(pool_->frame(id).page_id()); });
    std::sort(pages.begin(), pages.end());
    co_return co_await store_pages(std::move(pages));
}

Task<Result<>> Cache::store_pages(std::vector<PageId> pages) {
    std::vector<Stored> stored;
    while (!pages.empty()) {
        const uint64_t stored_before = stored_.count();
        std::vector<PageId> others;  // pages that somebody else is storing
        bool wrote = false;
        for (std::span<const PageId> left = pages; !left.empty();) {
            std::vector<FrameId> batch = take_home_dirty(left, others);
            if (batch.empty()) continue;
            wrote = true;
            const Result<> result = co_await write_home_bytes(std::move(batch), Atomicity::page, stored);
            if (!result || stored.size() >= pool_->frame_count() / unsettled_fraction)
                CO_TRY_VOID(co_await settle_stored(stored, result, false));
        }
        if (!wrote && !others.empty()) {
            // Not while others wait for ours: they may be what we wait for.
            if (stored.empty()) {
                co_await stored_.next(stored_before);
            } else {
                CO_TRY_VOID(co_await settle_stored(stored, {}, false));
            }
        }
        pages = std::move(others);
    }
    co_return co_await settle_stored(stored, {}, false);
}

// Up to one run of the first pages' frames that are to be stored, by the caller from here on. What the store has taken
// is as good as durable to whoever flushes it next.
std::vector<FrameId> Cache::take_home_dirty(std::span<const PageId>& pages, std::vector<PageId>& others) {
    std::vector<FrameId> taken;
    for (; !pages.empty() && taken.size() < run_pages_max; pages = pages.subspan(1)) {
        const PageId page = pages.front();
        const auto latch = stripes_.latch(page);
        Frame* const frame = homes_.find_exactly(page);
        if (!frame || !frame->home_dirty || frame->storing == Storing::taken) continue;
        if (frame->storing == Storing::begun) {
            others.push_back(page);
        } else {
            frame->storing = Storing::begun;
            taken.push_back(pool_->id_of(*frame));
        }
    }
    return taken;
}

Task<Result<>> Cache::store_group(std::vector<PageId> pages) {
    TARN_ASSERT(pages.size() <= store_.group_pages_max());
    std::sort(pages.begin(), pages.end());  // two groups never wait for each other
    std::vector<FrameId> group;
    for (size_t i = 0; i < pages.size();) {
        const uint64_t stored_before = stored_.count();
        {
            const auto latch = stripes_.latch(pages[i]);
            Frame* const frame = homes_.find_exactly(pages[i]);
            const bool wanted = frame && frame->home_dirty;
            if (wanted && frame->storing == Storing::no) {
                frame->storing = Storing::begun;
                group.push_back(pool_->id_of(*frame));
            }
            if (!wanted || (!group.empty() && group.back() == pool_->id_of(*frame))) {
                ++i;
                continue;
            }
        }
        co_await stored_.next(stored_before);
    }
    if (group.empty()) co_return Result<>{};
    std::vector<Stored> stored;
    const Result<> written = co_await write_home_bytes(std::move(group), Atomicity::group, stored);
    co_return co_await settle_stored(stored, written, false);
}

}  // namespace tarn
