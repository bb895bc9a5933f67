#include "coherence/home_store/home_writer.hpp"

#include <algorithm>
#include <cstring>

#include "tiers/nvme/device/page_buffer.hpp"

namespace tarn {

using protocol::Action;

namespace {

constexpr size_t write_pages_max = 64;  // written at once
// The fraction of the pool that one flush may have written but not yet made durable: these frames cannot be freed.
constexpr size_t unsettled_fraction = 4;

// Whether the frame still has the page's zeros; bytes may come at any time. Under the page's latch.
bool still_has(const Frame& frame, const OlderCopies::Page& zeros) {
    return frame.zeroed.load(std::memory_order_relaxed) && frame.home_tenure == zeros.tenure;
}

}  // namespace

// The bytes of a home frame as they are at one moment, and the sectors that may differ from what the store was given. A
// local owner may be writing this very frame: its writes that were not written back yet are in the bytes, so they are
// in the mask, too. Writers change both under the frame's latch.
DirtyMask HomeWriter::snapshot(Frame& frame, std::byte* into) {
    const std::byte* const bytes = parts_.pool.bytes(parts_.pool.id_of(frame));
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
            return copy();  // nobody can latch the frame
        }
    }
}

// Of these frames, which are `storing`: the pages of zeros that may be zeroed in the store; others are written there as
// they are. None at all if some host may keep older bytes of any of them; and none that somebody may write without
// asking, as that one counts on its space.
Task<std::vector<OlderCopies::Page>> HomeWriter::may_be_zeroed(std::span<const FrameId> ids) {
    std::vector<OlderCopies::Page> zeros;
    std::vector<FrameId> frames;
    for (const FrameId id : ids) {
        const Frame& frame = parts_.pool.frame(id);
        // What is trimmed from now on is a change, and is stored later.
        if (!frame.zeroed.load(std::memory_order_relaxed)) continue;
        const auto latch = parts_.stripes.latch(frame.page_id());
        zeros.push_back({.page = frame.page_id(), .tenure = frame.home_tenure});
        frames.push_back(id);
    }
    std::vector<OlderCopies::Page> zeroable;
    if (zeros.empty() || !co_await parts_.older_copies.end(zeros)) co_return zeroable;
    for (size_t i = 0; i < zeros.size(); ++i) {
        const Stripes::Turn turn(parts_.stripes, zeros[i].page);
        // Bytes that came meanwhile need their space.
        if (!still_has(parts_.pool.frame(frames[i]), zeros[i]) || !turn.home().has_everything(zeros[i].page)) continue;
        parts_.store.unreserve(zeros[i].page);
        zeroable.push_back(zeros[i]);
    }
    co_return zeroable;
}

Task<Result<>> HomeWriter::write(std::vector<FrameId> ids, Atomicity atomicity, std::vector<Stored>& stored) {
    Loop& loop = *Loop::current();
    const PageBuffer bounce = make_page_buffer(ids.size());
    std::vector<PageWrite> writes;
    std::vector<PageId> zeros;
    writes.reserve(ids.size());
    const std::vector<OlderCopies::Page> zeroable = co_await may_be_zeroed(ids);
    const auto is_zeroable = [&](const Frame& frame) {
        const auto found = std::ranges::find(zeroable, frame.page_id(), &OlderCopies::Page::page);
        return found != zeroable.end() && still_has(frame, *found);
    };
    for (const FrameId id : ids) {
        Frame& frame = parts_.pool.frame(id);
        const PageId page = frame.page_id();
        const auto latch = parts_.stripes.latch(page);
        TARN_ASSERT(frame.storing == Storing::begun && frame.home_dirty);
        stored.push_back({.frame = id, .version = frame.home_version});
        if (is_zeroable(frame)) {
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
    writes_.fetch_add(writes.size(), std::memory_order_relaxed);
    const size_t before = stored.size() - ids.size();
    Result<> result;
    if (!writes.empty()) result = co_await parts_.store.write(loop, writes, atomicity);
    for (const PageId page : zeros)
        if (const Result<> zeroed = co_await parts_.store.zero_page(loop, page); !zeroed && result) result = zeroed;
    if (!result) co_return result;
    for (const auto& [id, version] : std::span(stored).subspan(before)) {
        Frame& frame = parts_.pool.frame(id);
        const auto latch = parts_.stripes.latch(frame.page_id());
        if (frame.home_version == version) frame.storing = Storing::taken;
    }
    co_return result;
}

// Only durable bytes may leave memory: bytes in an unflushed store die with the process, the frames do not (D2).
Task<Result<>> HomeWriter::settle(std::vector<Stored>& stored, Result<> result, bool free_after) {
    if (result) result = co_await parts_.store.flush(*Loop::current());
    bool freed = false;
    for (const auto& [id, version] : stored) {
        Frame& frame = parts_.pool.frame(id);
        const auto latch = parts_.stripes.latch(frame.page_id());
        frame.storing = Storing::no;
        if (result && frame.home_version == version) {
            frame.home_dirty = false;
            parts_.home.dirty().remove(id);
            if (free_after && frame.uses.load(std::memory_order_relaxed) == use_home)
                freed |= parts_.home.forget(frame);
        }
    }
    stored.clear();
    if (freed) parts_.supply.freed();
    stored_.announce();
    parts_.flushes.check_store_failure();
    co_return result;
}

Task<Result<>> HomeWriter::store_and_free(std::vector<FrameId> ids) {
    std::vector<Stored> stored;
    const Result<> written = co_await write(std::move(ids), Atomicity::page, stored);
    co_return co_await settle(stored, written, true);
}

Task<Result<>> HomeWriter::store_volume(VolumeId volume) {
    std::vector<PageId> pages;
    parts_.home.dirty().for_each([&](FrameId id) {
        const PageId page = parts_.pool.frame(id).page_id();
        if (page.volume() == volume) pages.push_back(page);
    });
    return store_pages(std::move(pages));
}

// Moves this host's writes to pages homed here into home's frames. The protocol does not run any more.
void HomeWriter::bring_own_writes_home() {
    std::vector<FrameId> written;
    parts_.pages.dirty_frames().for_each([&](FrameId id) {
        if (parts_.membership.home_of(parts_.pool.frame(id).page_id()) == parts_.membership.self())
            written.push_back(id);
    });
    for (const FrameId id : written) {
        Frame& frame = parts_.pool.frame(id);
        Stripes::Turn turn(parts_.stripes, frame.page_id());
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
        turn.result().frames_freed |= parts_.home.apply_copy(copy);
        frame.dirty.store(0, std::memory_order_relaxed);
        frame.writing.store(0, std::memory_order_relaxed);
        parts_.pages.dirty_frames().remove(id);
    }
}

std::vector<VolumeId> HomeWriter::dirty_volumes() {
    std::vector<VolumeId> volumes;
    const auto add = [&](FrameId id) {
        const VolumeId volume = parts_.pool.frame(id).page_id().volume();
        if (std::ranges::find(volumes, volume) == volumes.end()) volumes.push_back(volume);
    };
    parts_.pages.dirty_frames().for_each(add);
    parts_.home.dirty().for_each(add);
    return volumes;
}

Task<Result<>> HomeWriter::store_rest() {
    TARN_ASSERT(parts_.stripes.abandoned());
    bring_own_writes_home();
    std::vector<PageId> pages;
    parts_.home.dirty().for_each([&](FrameId id) { pages.push_back(parts_.pool.frame(id).page_id()); });
    co_return co_await store_pages(std::move(pages));
}

Task<Result<>> HomeWriter::store_pages(std::vector<PageId> pages) {
    std::ranges::sort(pages);  // neighbours become one write
    std::vector<Stored> stored;
    while (!pages.empty()) {
        const uint64_t stored_before = stored_.count();
        std::vector<PageId> others;  // pages that other tasks are storing
        bool wrote = false;
        for (std::span<const PageId> left = pages; !left.empty();) {
            std::vector<FrameId> batch = take(left, others);
            if (batch.empty()) continue;
            wrote = true;
            const Result<> result = co_await write(std::move(batch), Atomicity::page, stored);
            if (!result || stored.size() >= parts_.pool.frame_count() / unsettled_fraction)
                CO_TRY_VOID(co_await settle(stored, result, false));
        }
        if (!wrote && !others.empty()) {
            // Not while others wait for our frames: that could be a cycle.
            if (stored.empty()) {
                co_await stored_.next(stored_before);
            } else {
                CO_TRY_VOID(co_await settle(stored, {}, false));
            }
        }
        pages = std::move(others);
    }
    co_return co_await settle(stored, {}, false);
}

// Takes the frames to be stored of up to one run of the first pages; the caller stores them. The next flush of the
// store covers pages that the store has taken already.
std::vector<FrameId> HomeWriter::take(std::span<const PageId>& pages, std::vector<PageId>& others) {
    std::vector<FrameId> taken;
    for (; !pages.empty() && taken.size() < write_pages_max; pages = pages.subspan(1)) {
        const PageId page = pages.front();
        const auto latch = parts_.stripes.latch(page);
        Frame* const frame = parts_.home.index().find_exactly(page);
        if (!frame || !frame->home_dirty || frame->storing == Storing::taken) continue;
        if (frame->storing == Storing::begun) {
            others.push_back(page);
        } else {
            frame->storing = Storing::begun;
            taken.push_back(parts_.pool.id_of(*frame));
        }
    }
    return taken;
}

Task<Result<>> HomeWriter::store_group(std::vector<PageId> pages) {
    TARN_ASSERT(pages.size() <= parts_.store.group_pages_max());
    std::sort(pages.begin(), pages.end());  // so that two groups never wait for each other
    std::vector<FrameId> group;
    for (size_t i = 0; i < pages.size();) {
        const uint64_t stored_before = stored_.count();
        {
            const auto latch = parts_.stripes.latch(pages[i]);
            Frame* const frame = parts_.home.index().find_exactly(pages[i]);
            const bool wanted = frame && frame->home_dirty;
            if (wanted && frame->storing == Storing::no) {
                frame->storing = Storing::begun;
                group.push_back(parts_.pool.id_of(*frame));
            }
            if (!wanted || (!group.empty() && group.back() == parts_.pool.id_of(*frame))) {
                ++i;
                continue;
            }
        }
        co_await stored_.next(stored_before);
    }
    if (group.empty()) co_return Result<>{};
    std::vector<Stored> stored;
    const Result<> written = co_await write(std::move(group), Atomicity::group, stored);
    co_return co_await settle(stored, written, false);
}

}  // namespace tarn
