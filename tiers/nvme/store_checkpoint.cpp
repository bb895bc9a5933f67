// Checkpoints: work in the background, so that the ring can go round.
//
// They are put off until the ring is nearly full, or nobody writes: a page that is written time and again is brought
// into place once, and a burst of writes has the device to itself. Then the ring's tail moves on, over some durable
// batches at a time:
//
//   1. Pages with records there are moved into place (store_move.cpp), and records say that they were.
//   2. Slabs that the part has records of, and whose blocks of the table do not say what these do, get their blocks
//      written: first place, flush, second place, flush (both places at once on a device that tears no block); never
//      before the records behind what they say are durable.
//   3. The superblock says that the journal begins later. Only when it is durable is the ring there free.
//
// So a block is written about once while the ring goes round, however many pages of its slab were.
#include <algorithm>

#include "tiers/nvme/store.hpp"
#include "utils/assert.hpp"
#include "utils/sync.hpp"

namespace tarn {

namespace {

constexpr size_t slabs_per_turn = 256;
constexpr uint64_t step_min = uint64_t{1} << 20;
constexpr SlabIndex slabs_apart_max = 4;  // and what lies between is written too: one long write beats two short ones

// How far the tail moves at a time: short steps keep those who wait for room from waiting long.
uint64_t step_of(uint64_t journal_size) {
    return std::max(journal_size / 16, std::min(journal_size / 4, step_min));
}

// Sorted, each once, and those between, where they are few.
std::vector<SlabIndex> in_long_runs(std::vector<SlabIndex> slabs) {
    std::ranges::sort(slabs);
    slabs.erase(std::ranges::unique(slabs).begin(), slabs.end());
    std::vector<SlabIndex> all;
    for (const SlabIndex slab : slabs) {
        if (!all.empty() && slab - all.back() <= slabs_apart_max)
            while (all.back() + 1 < slab) all.push_back(all.back() + 1);
        all.push_back(slab);
    }
    return all;
}

}  // namespace

// Waits until the checkpoint under way has made progress; not at all when there is none. wants_room: it goes on at
// least once more.
Task<> Store::await_progress(Loop& loop, bool wants_room) {
    uint64_t seen = 0;
    {
        const std::lock_guard lock(mutex_);
        if (!checkpointing_) co_return;
        room_is_wanted_ |= wants_room;
        seen = progress_.count();
    }
    co_await progress_.next(seen, loop);
}

Task<Result<>> Store::wait_for_room(Loop& loop, uint64_t size_bytes) {
    for (bool waited = false;; waited = true) {
        bool checkpoint = false;
        bool ring_is_full = false;
        {
            const std::lock_guard lock(mutex_);
            if (failure_) co_return fail(*failure_);
            checkpoint = !checkpointing_ && checkpoint_is_due();
            ring_is_full = !journal_.ring_has_room(size_bytes) || state_.journaled_count() >= journaled_pages_max_;
            if (ring_is_full && !waited) ++counts_.waits;
            if (has_room(size_bytes) && !checkpoint) co_return Result<>{};
        }
        if (checkpoint || ring_is_full) start_checkpoint(loop);
        if (ring_is_full) {
            co_await await_progress(loop, true);
        } else {
            const std::lock_guard lock(mutex_);
            if (has_room(size_bytes)) co_return Result<>{};
        }
        if (!ring_is_full) CO_TRY_VOID(co_await flush(loop));  // the staging buffer is full
    }
}

// Under the lock.
bool Store::checkpoint_is_due() const {
    const uint64_t used = journal_.used_bytes();
    const uint64_t size = journal_.size_bytes();
    return room_is_wanted_ || (closing_ && used > 0) || (catching_up_ && used > size / 8) || used > size / 4 * 3 ||
           state_.journaled_count() > journaled_pages_max_ / 4 * 3;
}

void Store::catch_up(Loop& loop) {
    {
        const std::lock_guard lock(mutex_);
        catching_up_ = true;
        if (!checkpoint_is_due()) return;
    }
    start_checkpoint(loop);
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
        locked([&] { room_is_wanted_ = false; });
        const Result<> done = note_failure(co_await move_tail(loop));
        bool again = false;
        {
            const std::lock_guard lock(mutex_);
            again = done && checkpoint_is_due();
            checkpointing_ = again;
            progress_.announce();  // under the lock: without a checkpoint the store may be gone as soon as it is free
        }
        if (!again) co_return;
        co_await Yield(loop);
    }
}

Task<Result<>> Store::move_tail(Loop& loop) {
    const bool nothing_is_durable = locked([&] { return journal_.durable() == journal_.tail(); });
    if (nothing_is_durable) CO_TRY_VOID(co_await flush(loop));
    Journal::Boundary end;
    std::vector<PageId> pages;
    bool record = false;
    {
        const std::lock_guard lock(mutex_);
        end = journal_.boundary_within(step_of(journal_.size_bytes()));
        if (end.position == journal_.tail()) co_return Result<>{};
        pages = state_.take_due_pages(end.position);
        record = !closing_;  // nothing stays in the journal then
    }
    std::vector<InPlace> unrecorded;
    CO_TRY_VOID(co_await move_pages(loop, std::move(pages), end.position, record, unrecorded));
    CO_TRY_VOID(co_await prove_moves(loop));
    std::vector<SlabIndex> due = locked([&] { return state_.take_due_slabs(end.position); });
    for (const InPlace& page : unrecorded) due.push_back(page.slab);
    const std::vector<SlabIndex> slabs = in_long_runs(std::move(due));
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
    for (const InPlace& page : unrecorded) state_.is_in_place(page.page, page.journaled, end.position);
    journal_.free_up_to(end);
    ++counts_.checkpoints;
    co_return Result<>{};
}

Task<Result<>> Store::write_table(Loop& loop, std::span<const SlabIndex> slabs) {
    const PageBuffer blocks = make_page_buffer(slabs.size());
    uint64_t said_until = 0;
    {
        const std::lock_guard lock(mutex_);
        ++table_sequence_;
        for (size_t i = 0; i < slabs.size(); ++i) {
            state_.table.encode(slabs[i], table_sequence_, BlockBytes(blocks.get() + i * page_size, page_size));
            state_.is_said(slabs[i]);
        }
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
    while (locked([&] { return checkpointing_; })) co_await await_progress(loop, false);
}

Task<Result<>> Store::close(Loop& loop, bool complete) {
    locked([&] { closing_ = true; });
    for (;;) {
        bool busy = false;
        std::optional<Error> failed;
        {
            const std::lock_guard lock(mutex_);
            busy = checkpointing_;
            failed = failure_;
            if (!busy && !failed && journal_.used_bytes() == 0 && superblock_written_ == superblock_wanted_) {
                if (superblock_.is_complete == complete) {
                    closing_ = false;
                    co_return Result<>{};
                }
                superblock_.is_complete = complete;
                ++superblock_wanted_;
            }
        }
        if (!busy && failed) co_return fail(*failed);
        if (!busy) start_checkpoint(loop);
        co_await await_progress(loop, false);
    }
}

}  // namespace tarn
