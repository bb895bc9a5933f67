// Flush rounds: what was appended to the journal is written in one piece, and one device flush serves all who wait.
#include "tiers/nvme/store.hpp"
#include "utils/assert.hpp"

namespace tarn {

Task<Result<>> Store::flush(Loop& loop) {
    {
        const std::lock_guard lock(mutex_);
        if (failure_) co_return fail(*failure_);
        if (journal_.durable() == journal_.head() && superblock_written_ == superblock_wanted_) co_return Result<>{};
    }
    co_return co_await share_round(loop, flushes_, &Store::run_flush_round);
}

Task<Result<>> Store::share_round(Loop& loop, GroupCommit& commit, Task<Result<>> (Store::*round)(Loop&)) {
    GroupCommit::Join join(commit, loop);
    if (!co_await join) co_return join.result();
    if (&commit == &flushes_ && flushes_.crowded()) co_await Yield(loop);
    commit.begin();
    Result<> result;
    if (const std::optional<Error> failed = failure())
        result = fail(*failed);
    else
        result = note_failure(co_await (this->*round)(loop));
    commit.finish(result);
    co_return result;
}

Task<Result<>> Store::run_flush_round(Loop& loop) {
    Journal::Round round;
    uint64_t superblock_wanted = 0;
    bool superblock_is_old = false;
    bool in_place = false;
    {
        const std::lock_guard lock(mutex_);
        round = journal_.close();
        in_place = std::exchange(in_place_unflushed_, false);
        superblock_wanted = superblock_wanted_;
        superblock_is_old = superblock_written_ != superblock_wanted;
    }
    if (!round.batches.empty()) {
        journal_.complete(round);
        // Pages that lie in their places need the device to be flushed; the journal alone is written through.
        Transfer transfer(in_place ? Transfer::Direction::write : Transfer::Direction::write_through);
        journal_.add_to(transfer, round);
        CO_TRY_VOID(co_await transfer.run(loop, *device_));
        if (in_place) CO_TRY_VOID(co_await flush_device(loop));
        if (const std::optional<Error> failed = failure()) co_return fail(*failed);  // as in flush_device
        const std::lock_guard lock(mutex_);
        journal_.round_is_durable(round);
        state_.table.records_are_durable(journal_.durable());
        ++counts_.rounds;
    }
    if (superblock_is_old) {
        CO_TRY_VOID(co_await write_superblock(loop));
        const std::lock_guard lock(mutex_);
        superblock_written_ = superblock_wanted;
    }
    co_return Result<>{};
}

// A flush that failed beside this one may have dropped what this one should have made durable, and the device says so
// only once.
Task<Result<>> Store::flush_device(Loop& loop) {
    CO_TRY_VOID(note_failure(co_await device_->flush(loop)));
    if (const std::optional<Error> failed = failure()) co_return fail(*failed);
    co_return Result<>{};
}

// One copy after the other: at any instant one of them is whole.
Task<Result<>> Store::write_copies(Loop& loop, const std::array<uint64_t, 2>& offsets,
                                   std::span<const std::byte> bytes) {
    for (const uint64_t offset : offsets) {
        Transfer transfer(Transfer::Direction::write);
        transfer.add(offset, bytes.data(), bytes.size());
        CO_TRY_VOID(co_await transfer.run(loop, *device_));
        CO_TRY_VOID(co_await flush_device(loop));
    }
    co_return Result<>{};
}

Task<Result<>> Store::write_losses(Loop& loop, const LossList& list) {
    const PageBuffer buffer = make_page_buffer(loss_list_size_max / page_size);
    co_return co_await write_copies(loop, loss_list_offsets,
                                    encode_losses(superblock_.store, list, {buffer.get(), loss_list_size_max}));
}

// The next round writes it.
void Store::want_superblock() {
    const std::lock_guard lock(mutex_);
    ++superblock_wanted_;
}

// By the leader of a round. The losses come first: their generation must mean something once it is told.
Task<Result<>> Store::write_superblock(Loop& loop) {
    LossList losses;
    bool losses_are_old = false;
    {
        const std::lock_guard lock(mutex_);
        superblock_.loss_generation = loss_generation_wanted_;
        losses_are_old = losses_written_ != losses_.sequence;
        if (losses_are_old) losses = losses_;
    }
    if (losses_are_old) {
        CO_TRY_VOID(co_await write_losses(loop, losses));
        const std::lock_guard lock(mutex_);
        losses_written_ = losses.sequence;
    }
    superblock_.has_marks = knows_marks();
    const PageBuffer block = make_page_buffer(1);
    {
        const std::lock_guard lock(mutex_);
        superblock_.journal_tail = wanted_tail_.position;
        superblock_.journal_tail_checksum = wanted_tail_.checksum;
        for (HostId host = 0; host < hosts_max; ++host) superblock_.forgotten[host] = forgotten(host);
        ++superblock_.generation;
        encode_superblock(superblock_, BlockBytes(block.get(), page_size));
    }
    co_return co_await write_copies(loop, StoreLayout::superblock_offsets, {block.get(), page_size});
}

Task<Result<uint32_t>> Store::record_losses(Loop& loop, std::vector<Loss> losses) {
    uint32_t generation = 0;
    {
        const std::lock_guard lock(mutex_);
        generation = static_cast<uint32_t>(++loss_generation_wanted_);
        for (Loss& loss : losses) loss.generation = generation;
        losses_.losses.insert(losses_.losses.end(), losses.begin(), losses.end());
        bound_losses(losses_.losses);
        ++losses_.sequence;
        ++superblock_wanted_;
    }
    CO_TRY_VOID(co_await flush(loop));
    // Told to nobody before: a generation that did not last would be given to another loss.
    uint64_t told = loss_generation_.load(std::memory_order_relaxed);
    while (told < generation && !loss_generation_.compare_exchange_weak(told, generation)) {
    }
    co_return generation;
}

Task<Result<>> Store::set_forgotten(Loop& loop, HostId host, uint32_t value) {
    forgotten_[host].store(value, std::memory_order_relaxed);
    want_superblock();
    return flush(loop);
}

// D6: the first failure stays, whatever a later attempt says.
Result<> Store::note_failure(const Result<>& result) {
    if (result) return result;
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = result.error();
    failed_.store(true, std::memory_order_relaxed);
    return result;
}

}  // namespace tarn
