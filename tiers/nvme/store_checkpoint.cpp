// Checkpoints: what the journal holds is brought into place in the background, so that the ring can go round.
//
//   1. A flush round: nothing reaches its place before it is durable in the journal.
//   2. The pages due are put together, from place and journal, and written in place: in the order of the journal, so
//      that what is no longer in memory is read in long pieces, and a few turns at a time.
//   3. Their slabs' blocks of the table are written, first place, flush, second place, flush (both places at once on a
//      device that tears no block): never before the records
//      behind what they say are durable. The first of these flushes is that of the pages, too: until it is done the
//      journal goes over both.
//   4. The superblock says that the journal begins later. Only when it is durable is the ring there free.
#include <algorithm>
#include <numeric>

#include "tiers/nvme/store.hpp"
#include "utils/assert.hpp"
#include "utils/sync.hpp"

namespace tarn {

namespace {

constexpr size_t pages_per_turn = 32;
constexpr size_t turns_at_once = 3;  // more would hold up those who wait for the device meanwhile
constexpr size_t slabs_per_turn = 256;
constexpr SlabIndex slabs_apart_max = 4;  // and what lies between is written too: one long write beats two short ones
constexpr int read_attempts = 3;

// And those between, where they are few.
std::vector<SlabIndex> in_long_runs(std::span<const SlabIndex> sorted) {
    std::vector<SlabIndex> all;
    for (const SlabIndex slab : sorted) {
        if (!all.empty() && slab - all.back() <= slabs_apart_max)
            while (all.back() + 1 < slab) all.push_back(all.back() + 1);
        all.push_back(slab);
    }
    return all;
}

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

// Waits until the checkpoint under way has made progress; not at all when there is none.
class Store::Progress final : public Loop::Posted {
  public:
    // wants_room: the checkpoint goes on at least once more.
    Progress(Store& store, Loop& loop, bool wants_room) : store_(store), loop_(loop), wants_room_(wants_room) {}
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> handle) {
        const std::lock_guard lock(store_.mutex_);
        if (!store_.checkpointing_) return false;
        handle_ = handle;
        next_waiting_ = std::exchange(store_.waiting_, this);
        store_.room_is_wanted_ |= wants_room_;
        return true;
    }
    void await_resume() const noexcept {}
    void run() override { handle_.resume(); }

    // A waiter may be gone as soon as it was posted.
    static void wake_all(Progress* waiting) {
        while (waiting) {
            Progress& one = *std::exchange(waiting, waiting->next_waiting_);
            one.loop_.post(one);
        }
    }

  private:
    Store& store_;
    Loop& loop_;
    std::coroutine_handle<> handle_;
    Progress* next_waiting_ = nullptr;
    bool wants_room_;
};

Task<Result<>> Store::wait_for_room(Loop& loop, uint64_t size_bytes) {
    for (bool waited = false;; waited = true) {
        bool checkpoint = false;
        bool ring_is_full = false;
        {
            const std::lock_guard lock(mutex_);
            if (failure_) co_return fail(*failure_);
            checkpoint = checkpoint_is_due();
            ring_is_full = !journal_.ring_has_room(size_bytes) || state_.journaled_count() >= journaled_pages_max_;
            if (ring_is_full && !waited) ++counts_.waits;
            if (has_room(size_bytes) && !checkpoint) co_return Result<>{};
        }
        if (checkpoint || ring_is_full) start_checkpoint(loop);
        if (ring_is_full) {
            co_await Progress(*this, loop, true);
        } else {
            const std::lock_guard lock(mutex_);
            if (has_room(size_bytes)) co_return Result<>{};
        }
        if (!ring_is_full) CO_TRY_VOID(co_await flush(loop));  // the staging buffer is full
    }
}

bool Store::checkpoint_is_due() const {
    return !checkpointing_ &&
           (journal_.used_bytes() > journal_.size_bytes() / 4 || state_.journaled_count() > journaled_pages_max_ / 2);
}

void Store::start_checkpoint(Loop& loop) {
    {
        const std::lock_guard lock(mutex_);
        if (checkpointing_ || failure_) return;
        checkpointing_ = true;
    }
    loop.spawn(run_checkpoints(loop));
}

Task<> Store::run_checkpoints(Loop& loop) {
    for (;;) {
        const Result<> done = note_failure(co_await checkpoint(loop));
        Progress* waiting = nullptr;
        bool again = false;
        {
            const std::lock_guard lock(mutex_);
            waiting = std::exchange(waiting_, nullptr);
            again = done && (std::exchange(room_is_wanted_, false) || (closing_ && journal_.used_bytes() > 0) ||
                             journal_.used_bytes() > journal_.size_bytes() / 8);
            checkpointing_ = again;
        }
        Progress::wake_all(waiting);
        if (!again) co_return;
        co_await Yield(loop);
    }
}

Task<Result<>> Store::checkpoint(Loop& loop) {
    CO_TRY_VOID(co_await flush(loop));
    Journal::Boundary end;
    StoreState::Due due;
    {
        const std::lock_guard lock(mutex_);
        end = journal_.boundary_within(journal_.size_bytes() / 4);
        if (end.position == journal_.tail()) co_return Result<>{};
        due = state_.take_due(end.position);
        sort_by_journal(due.pages);
    }
    Turns turns;
    turns.written.reserve(due.pages.size());
    for (std::span<const PageId> left = due.pages; !left.empty() && turns.result;) {
        const std::span<const PageId> some = left.first(std::min(left.size(), pages_per_turn));
        co_await turns.places.acquire();
        turns.gate.spawn(run_turn(*this, loop, some, end.position, turns));
        left = left.subspan(some.size());
    }
    co_await turns.gate.close();
    CO_TRY_VOID(turns.result);
    const std::vector<SlabIndex> slabs = in_long_runs(due.slabs);
    for (std::span<const SlabIndex> left = slabs; !left.empty();) {
        const std::span<const SlabIndex> some = left.first(std::min(left.size(), slabs_per_turn));
        CO_TRY_VOID(co_await write_table(loop, some));
        left = left.subspan(some.size());
    }
    {
        const std::lock_guard lock(mutex_);
        wanted_tail_ = end;
        ++superblock_wanted_;
    }
    CO_TRY_VOID(co_await flush(loop));
    const std::lock_guard lock(mutex_);
    for (const InPlace& page : turns.written) state_.is_in_place(page.page, page.journaled, end.position);
    journal_.free_up_to(end);
    ++counts_.checkpoints;
    co_return Result<>{};
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
            // Cleared meanwhile; what came after that is due later.
            if (!journaled || !slab || journaled->oldest > end) continue;
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
                {
                    const std::lock_guard lock(mutex_);
                    one.add(loader.source(i), journal_, loader.bytes(i));
                }
                readable[i] = (co_await one.run(loop, *device_)).has_value();
            }
        }
    }
    {
        const std::lock_guard lock(mutex_);
        newest = newest > journal_.durable() ? newest : 0;
    }
    if (newest != 0) result = co_await flush(loop);
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
            written.push_back({.page = source.page, .journaled = source.journaled});
        }
        state_.table.end_checkpoint(slabs[i]);
        state_.table.unpin(slabs[i]);
    }
    co_return result;
}

Task<Result<>> Store::write_table(Loop& loop, std::span<const SlabIndex> slabs) {
    const PageBuffer blocks = make_page_buffer(slabs.size());
    uint64_t said_until = 0;
    {
        const std::lock_guard lock(mutex_);
        ++table_sequence_;
        for (size_t i = 0; i < slabs.size(); ++i)
            state_.table.encode(slabs[i], table_sequence_, BlockBytes(blocks.get() + i * page_size, page_size));
        said_until = journal_.head();
        if (said_until == journal_.durable()) said_until = 0;
    }
    if (said_until != 0) CO_TRY_VOID(co_await flush(loop));
    // At any instant one of a block's places is whole.
    const size_t places_at_once = device_->atomic_write_max() > 0 ? 2 : 1;
    for (std::span<const uint64_t> left = layout_.table_offsets; !left.empty(); left = left.subspan(places_at_once))
        CO_TRY_VOID(co_await write_blocks(loop, slabs, blocks.get(), left.first(places_at_once)));
    co_return Result<>{};
}

Task<Result<>> Store::write_blocks(Loop& loop, std::span<const SlabIndex> slabs, const std::byte* blocks,
                                   std::span<const uint64_t> table_offsets) {
    const uint64_t atomic_max = device_->atomic_write_max();
    Transfer transfer(atomic_max > 0 ? Transfer::Direction::write_atomic : Transfer::Direction::write, atomic_max);
    for (const uint64_t offset : table_offsets)
        for (size_t i = 0; i < slabs.size(); ++i)
            transfer.add(offset + slabs[i] * page_size, blocks + i * page_size, page_size);
    CO_TRY_VOID(co_await transfer.run(loop, *device_));
    co_return co_await flush_device(loop);
}

Task<> Store::settle(Loop& loop) {
    for (;;) {
        {
            const std::lock_guard lock(mutex_);
            if (!checkpointing_) co_return;
        }
        co_await Progress(*this, loop, false);
    }
}

Task<Result<>> Store::close(Loop& loop, bool complete) {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    for (;;) {
        bool busy = false;
        std::optional<Error> failed;
        {
            const std::lock_guard lock(mutex_);
            busy = checkpointing_;
            failed = failure_;
            if (!busy && !failed && journal_.used_bytes() == 0 && superblock_written_ == superblock_wanted_) {
                if (is_complete_ == complete) {
                    closing_ = false;
                    co_return Result<>{};
                }
                is_complete_ = complete;
                ++superblock_wanted_;
            }
        }
        if (!busy && failed) co_return fail(*failed);
        if (!busy) start_checkpoint(loop);
        co_await Progress(*this, loop, false);
    }
}

}  // namespace tarn
