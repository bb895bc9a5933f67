// How far a store has come, and what other hosts remember of that: what tells a store that was copied back, or copied
// and started twice, from the one that they know.
//
// Each start draws a nonce, and notes where the journal ended that it had found. So a standing (home epoch, nonce,
// durable position) lies behind this store if the start of that epoch had that nonce, and the journal was carried on
// from that position or beyond: by this process, or by the start after it.
#include <sys/random.h>

#include "tiers/nvme/store.hpp"
#include "utils/assert.hpp"
#include "utils/clock.hpp"
#include "utils/log.hpp"

namespace tarn {

// Before the superblock of the new epoch is written.
void Store::begin_epoch() {
    StoreStart& start = superblock_.starts[home_epoch() % starts_max];
    start.position = journal_.head();
    do {
        TARN_ASSERT(::getrandom(&start.nonce, sizeof start.nonce, 0) == sizeof start.nonce);
    } while (start.nonce == 0);
}

// Of an older store nobody can tell which pages are old. The losses are on the device before the superblock says that
// it may be used again.
Result<> Store::accept_as_older() {
    log::warning("store: another host remembers it as of home epoch {}, and it is at {}: all its pages count as lost",
                 superblock_.outdone_by_epoch, superblock_.home_epoch);
    const auto generation = static_cast<uint32_t>(superblock_.loss_generation + 1);
    losses_.losses.push_back({.first = {0}, .last = last_page_id, .at_ns = realtime_ns(), .generation = generation});
    bound_losses(losses_.losses);
    ++losses_.sequence;
    TRY_VOID(write_losses_now());
    losses_written_ = losses_.sequence;
    superblock_.loss_generation = loss_generation_wanted_ = generation;
    loss_generation_ = generation;
    // Nobody has met the epochs from there on.
    superblock_.home_epoch = std::max<uint64_t>(superblock_.home_epoch, superblock_.outdone_by_epoch);
    superblock_.accepted_epoch = static_cast<uint32_t>(superblock_.home_epoch + 1);
    superblock_.outdone_by_epoch = 0;
    return {};
}

uint32_t Store::intact_since() const {
    const bool goes_on = was_complete_ && superblock_.accepted_epoch != home_epoch() && superblock_.intact_since != 0;
    return goes_on ? superblock_.intact_since : static_cast<uint32_t>(home_epoch());
}

StoreStanding Store::standing() const {
    const std::lock_guard lock(mutex_);
    return {.epoch = static_cast<uint32_t>(home_epoch()),
            .nonce = superblock_.starts[home_epoch() % starts_max].nonce,
            .position = journal_.durable()};
}

Result<> Store::has_come_as_far_as(const StoreStanding& remembered) const {
    const StoreStanding now = standing();
    if (remembered.epoch < superblock_.accepted_epoch) return {};
    if (remembered.epoch > now.epoch)
        return fail(Errc::refused, 0, "the store is of an earlier start than the one that was met");
    // Too long ago to tell: the same for stores that were started before this was kept.
    if (remembered.epoch == 0 || remembered.epoch + starts_max <= now.epoch) return {};
    if (superblock_.starts[remembered.epoch % starts_max].nonce != remembered.nonce)
        return fail(Errc::refused, 0, "the store is another copy of the one that was met");
    const uint64_t came_to =
        remembered.epoch == now.epoch ? now.position : superblock_.starts[(remembered.epoch + 1) % starts_max].position;
    if (came_to < remembered.position)
        return fail(Errc::refused, 0, "the store lacks what had been durable when it was met");
    return {};
}

Task<Result<>> Store::set_outdone(Loop& loop, const StoreStanding& remembered) {
    locked([&] { superblock_.outdone_by_epoch = std::max(superblock_.outdone_by_epoch, remembered.epoch); });
    want_superblock();
    return flush(loop);
}

Task<Result<>> Store::set_heard(Loop& loop, HostId host, const StoreStanding& standing) {
    {
        const std::lock_guard lock(mutex_);
        StoreStanding& known = superblock_.heard[host];
        if (standing.epoch < known.epoch || (standing.epoch == known.epoch && standing.position <= known.position))
            co_return Result<>{};
        known = standing;
        ++superblock_wanted_;
    }
    co_return co_await flush(loop);
}

}  // namespace tarn
