// Moving pages: from the journal into place, and the record that says so, which takes 128 bytes of the ring where the
// page took 4 KiB.
//
// Moved are the newest bytes of a page, in the order of the journal, so that what is no longer in memory is read in
// long pieces. The record is written once the device was flushed: whoever finds it may rely on the place. A page that
// was written to while it was moved gets none: its slab's block says what lies in its place.
#include <algorithm>
#include <numeric>

#include "tiers/nvme/store.hpp"
#include "utils/sync.hpp"

namespace tarn {

namespace {

constexpr size_t pages_per_turn = 32;
constexpr size_t turns_at_once = 6;  // fewer leave the device idle, more hold up those who wait for it
constexpr size_t records_at_once = 64;
constexpr int read_attempts = 3;

}  // namespace

struct Store::Turns {
    Gate gate;
    Semaphore places{turns_at_once};
    Result<> result;
    std::vector<InPlace> written;
};

Task<> Store::run_turn(Store& store, Loop& loop, std::span<const PageId> pages, uint64_t end, Turns& turns) {
    const Result<> result = co_await store.bring_into_place(loop, pages, end, turns.written);
    if (!result && turns.result) turns.result = result;
    turns.places.release();
}

// The pages' newest bytes, of those that have records up to `end`. unrecorded: what lies in place, but has no record
// that says so.
Task<Result<>> Store::move_pages(Loop& loop, std::vector<PageId> pages, uint64_t end, bool record,
                                 std::vector<InPlace>& unrecorded) {
    locked([&] { sort_by_journal(pages); });
    Turns turns;
    turns.written.reserve(pages.size());
    for (std::span<const PageId> left = pages; !left.empty() && turns.result;) {
        const std::span<const PageId> some = left.first(std::min(left.size(), pages_per_turn));
        co_await turns.places.acquire();
        turns.gate.spawn(run_turn(*this, loop, some, end, turns));
        left = left.subspan(some.size());
    }
    co_await turns.gate.close();
    CO_TRY_VOID(turns.result);
    if (!record || turns.written.empty()) {
        unrecorded = std::move(turns.written);
        co_return Result<>{};
    }
    CO_TRY_VOID(co_await flush_device(loop));
    std::ranges::sort(turns.written, {}, &InPlace::page);
    co_return co_await record_moves(loop, turns.written, unrecorded);
}

Task<Result<>> Store::record_moves(Loop& loop, std::span<const InPlace> moved, std::vector<InPlace>& unrecorded) {
    while (!moved.empty()) {
        bool staging_is_full = false;
        {
            const std::lock_guard lock(mutex_);
            for (size_t i = 0; i < records_at_once && !moved.empty() && !staging_is_full; ++i) {
                const size_t count = unchanged_run(moved);
                const JournalRecord move{.kind = RecordKind::in_place,
                                         .flags = JournalRecord::moved,
                                         .slab = moved.front().slab,
                                         .page = moved.front().page,
                                         .count = static_cast<uint32_t>(std::max<size_t>(count, 1))};
                const uint64_t size = sizeof move + move.payload_size();
                if (count == 0 || !journal_.ring_has_room(size)) {
                    unrecorded.push_back(moved.front());
                    moved = moved.subspan(1);
                } else if (!journal_.staging_has_room(size)) {
                    staging_is_full = true;
                } else {
                    append_move(move, moved.first(count));
                    moved = moved.subspan(count);
                }
            }
        }
        if (staging_is_full) CO_TRY_VOID(co_await flush(loop));
    }
    co_return Result<>{};
}

// Under the lock. How many of the first pages follow each other in one slab and were not written to since.
size_t Store::unchanged_run(std::span<const InPlace> moved) const {
    size_t count = 0;
    for (; count < moved.size(); ++count) {
        const InPlace& page = moved[count];
        const JournaledPage* const now = state_.find(page.page);
        if (!now || now->newest != page.journaled.newest || page.slab != moved.front().slab ||
            page.page.value != moved.front().page.value + count)
            break;
    }
    return count;
}

// Under the lock, when there is room.
void Store::append_move(const JournalRecord& move, std::span<const InPlace> moved) {
    std::vector<InPlaceEntry> entries(move.payload_size() / sizeof(InPlaceEntry));
    for (size_t i = 0; i < moved.size(); ++i)
        entries[i] = {.tenure = moved[i].journaled.tenure, .checksum = moved[i].journaled.checksum};
    const std::span<const std::byte> payload = std::as_bytes(std::span(entries));
    journal_.append(move, std::span(&payload, 1));
    state_.on_in_place(move, entries, journal_.head());
    moved_until_ = journal_.head();
}

// Until the records of what was moved are durable and a later batch says that they were: a batch without a successor
// that rots looks like one that was never written, and then what it stands for must still be on the ring.
Task<Result<>> Store::prove_moves(Loop& loop) {
    for (;;) {
        {
            const std::lock_guard lock(mutex_);
            if (journal_.proven() >= moved_until_) co_return Result<>{};
            if (journal_.durable() == journal_.head()) journal_.append_nothing();
        }
        CO_TRY_VOID(co_await flush(loop));
    }
}

// Under the lock.
void Store::sort_by_journal(std::vector<PageId>& pages) const {
    std::vector<std::pair<uint64_t, PageId>> sorted;
    sorted.reserve(pages.size());
    for (const PageId page : pages) {
        const JournaledPage* const journaled = state_.find(page);
        sorted.emplace_back(journaled ? journaled->newest : 0, page);
    }
    std::ranges::sort(sorted);
    std::ranges::transform(sorted, pages.begin(), [](const auto& each) { return each.second; });
}

Task<Result<>> Store::bring_into_place(Loop& loop, std::span<const PageId> pages, uint64_t end,
                                       std::vector<InPlace>& written) {
    PageLoader loader;
    std::vector<SlabIndex> slabs;
    const PageBuffer buffer = make_page_buffer(pages.size());
    uint64_t newest = 0;
    {
        const std::lock_guard lock(mutex_);
        for (const PageId page : pages) {
            const JournaledPage* const journaled = state_.find(page);
            const auto slab = state_.table.find(page.volume(), SlabTable::slab_number(page));
            // Cleared meanwhile; what came after that is due later. (What was cleared in a hole of a journal that is
            // salvaged may still look as if it were in the journal.)
            if (!journaled || !slab || journaled->oldest > end ||
                !state_.table.present(*slab, SlabTable::page_in_slab(page)))
                continue;
            state_.table.pin(*slab);
            state_.table.begin_checkpoint(*slab);
            slabs.push_back(*slab);
            newest = std::max(newest, journaled->newest);
            loader.add(source_of(page, *slab), journal_, buffer.get() + loader.count() * page_size);
        }
    }
    Result<> result = co_await loader.run(loop, *device_);
    std::vector<bool> readable(loader.count(), true);
    if (!result && loader.count() > 0) {
        // One page by one: what cannot be read must not keep the others from their places.
        result = {};
        for (size_t i = 0; i < loader.count(); ++i) {
            readable[i] = false;
            for (int attempt = 0; attempt < read_attempts && !readable[i]; ++attempt) {
                PageLoader one;
                locked([&] { one.add(loader.source(i), journal_, loader.bytes(i)); });
                readable[i] = (co_await one.run(loop, *device_)).has_value();
            }
        }
    }
    const bool flush_comes_first = locked([&] { return newest > journal_.durable(); });
    if (flush_comes_first) result = co_await flush(loop);
    std::vector<size_t> by_place(loader.count());
    std::iota(by_place.begin(), by_place.end(), size_t{0});
    std::ranges::sort(by_place, {}, [&](size_t i) { return loader.source(i).place; });
    Transfer transfer(Transfer::Direction::write);
    for (const size_t i : by_place) {
        // A page whose base rotted is bad from here on, and its checksum, that of what it should be, says so.
        if (const uint32_t found = loader.checksum(i); !readable[i] || found != loader.source(i).entry.checksum)
            report_bad(loader.source(i), found);
        if (readable[i]) transfer.add(loader.source(i).place, loader.bytes(i), page_size);
    }
    if (result) result = co_await transfer.run(loop, *device_);
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < loader.count(); ++i) {
        const PageLoader::Source& source = loader.source(i);
        const JournaledPage* const now = state_.find(source.page);
        if (result && now && now->oldest <= end) {
            state_.table.set_in_place(slabs[i], SlabTable::page_in_slab(source.page), source.entry);
            written.push_back({.page = source.page, .journaled = source.journaled, .slab = slabs[i]});
        }
        state_.table.end_checkpoint(slabs[i]);
        state_.table.unpin(slabs[i]);
    }
    co_return result;
}

}  // namespace tarn
