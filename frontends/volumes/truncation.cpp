// CachedVolume: its size, and what lies past it.
//
// The size changes first, at once, and with it the mark of what has to be zeroed (AttributePage::zeroing_from): nobody
// reads past the end any more, and nobody writes there before that is done and the mark is gone. Who has the mark is
// named in it by host and process. Others ask that host to tell when it has ended; if the process is gone, or did not
// come to the end, they go on in its place.
//
// Other bytes may lie past the end, too: of a growth whose size was lost, or of a cut whose zeros were. So who moves
// the end over bytes that it does not write itself makes them zeros first (zero_past_end).
#include <cstring>

#include "coherence/pages/page_access.hpp"
#include "frontends/volumes/attribute_page.hpp"
#include "frontends/volumes/cached_volume.hpp"
#include "utils/with_timeout.hpp"

namespace tarn {

namespace {

bool is_same_mark(const AttributePage& page, const AttributePage& seen) {
    return page.zeroing_from != AttributePage::no_zeroing && page.truncations == seen.truncations &&
           page.zeroing_attempt == seen.zeroing_attempt;
}

void mark(AttributePage& page, uint64_t from, uint64_t end, const Membership& membership) {
    page.zeroing_from = from;
    page.zeroing_end = end;
    ++page.zeroing_attempt;  // no two marks are the same
    page.zeroing_host = membership.self();
    page.zeroing_epoch = membership.process().epoch;
}

// Until the process that has the mark says that it does not zero any more, or there is another one, or none.
Task<Result<>> await_zeroing(Cache& cache, VolumeId volume, HostId host, uint32_t epoch) {
    for (;;) {
        const uint64_t seen = cache.membership().changed().count();
        if (cache.abandoned()) co_return fail(Errc::cancelled, 0, "volume.zeroing");
        if (cache.membership().is_dead(host) || cache.membership().process_of(host).epoch != epoch || !cache.fabric())
            co_return Result<>{};
        const Result<std::string> answer = co_await cache.fabric()->call(host, CallKind::zeroing_over, pack(volume));
        if (answer) co_return Result<>{};
        if (answer.error().code != Errc::unavailable && answer.error().code != Errc::closed)
            co_return fail(answer.error());
        co_await cache.membership().changed().next(seen);
    }
}

}  // namespace

Task<Result<AttributePage>> CachedVolume::whole_attribute_page() {
    std::array<std::byte, sizeof(AttributePage)> bytes;
    if (!cache_.pages().try_read(attribute_page_of(id()), 0, bytes, session_.losses))
        CO_TRY_VOID(co_await read(attribute_page_of(id()).number() * page_size, bytes));
    co_return AttributePage::load(bytes.data());
}

Task<Result<Attributes>> CachedVolume::change_size(AttributeChange change) {
    const uint64_t size = *change.size_bytes;
    for (uint64_t zeros_from = size;;) {
        CO_TRY(VolumeTurns::Turn turn, co_await with_timeout(fail_after(), context_.cutting_turns.take(id())));
        bool cut = false;
        bool must_wait = false;
        bool must_zero = false;
        const auto set_size = [&](AttributePage& page) {
            cut = size < page.size_bytes;
            must_wait = page.zeroing_from != AttributePage::no_zeroing && (cut || page.zeroes_before(size));
            must_zero = page.size_bytes < zeros_from && !page.is_new();
            if (must_wait || must_zero) return false;
            change_page(page, change);
            if (cut) {
                mark(page, size, page.size_bytes, cache_.membership());
                page.cut(size);
            } else {
                page.size_bytes = size;
            }
            return true;
        };
        CO_TRY(const AttributePage after, co_await update_attributes(set_size));
        if (must_wait) {
            turn.end();
            CO_TRY_VOID(co_await zeroing_over());
            continue;
        }
        if (must_zero) {
            turn.end();
            CO_TRY(zeros_from, co_await zero_past_end(size));
            continue;
        }
        if (cut) CO_TRY_VOID(co_await zero_cut(after));
        co_return after.attributes();
    }
}

// With the turn of the volume. An error leaves the mark.
Task<Result<>> CachedVolume::zero_cut(AttributePage marked) {
    CO_TRY_VOID(co_await zero(marked.zeroing_from, marked.zeroing_end - marked.zeroing_from, false));
    CO_TRY_VOID(co_await update_attributes([&](AttributePage& page) {
        if (!is_same_mark(page, marked)) return false;
        page.zeroing_from = AttributePage::no_zeroing;
        return true;
    }));
    co_return Result<>{};
}

// Returns an offset: what lies from there to `until`, and past the end, is zeros.
Task<Result<uint64_t>> CachedVolume::zero_past_end(uint64_t until) {
    for (;;) {
        CO_TRY(const AttributePage now, co_await attribute_page());
        if (now.size_bytes >= until) co_return until;
        CO_TRY(const std::vector<Extent> runs, co_await extents(now.size_bytes, until - now.size_bytes));
        if (runs[0].hole && runs[0].size_bytes == until - now.size_bytes) co_return now.size_bytes;
        CO_TRY(VolumeTurns::Turn turn, co_await with_timeout(fail_after(), context_.cutting_turns.take(id())));
        bool is_marked = false;
        CO_TRY(const AttributePage marked, co_await update_attributes([&](AttributePage& page) {
                   is_marked = page.zeroing_from == AttributePage::no_zeroing && page.size_bytes < until;
                   if (is_marked) mark(page, page.size_bytes, until, cache_.membership());
                   return is_marked;
               }));
        if (is_marked) {
            CO_TRY_VOID(co_await zero_cut(marked));
            co_return marked.size_bytes;
        }
        turn.end();
        CO_TRY_VOID(co_await zeroing_over());
    }
}

// Until the mark of this moment is gone.
Task<Result<>> CachedVolume::zeroing_over() {
    CO_TRY(const AttributePage seen, co_await whole_attribute_page());
    if (seen.zeroing_from == AttributePage::no_zeroing) co_return Result<>{};
    const auto host = static_cast<HostId>(seen.zeroing_host);
    if (host != cache_.self() && host < hosts_max)
        CO_TRY_VOID(co_await with_timeout(fail_after(), await_zeroing(cache_, id(), host, seen.zeroing_epoch)));
    // Here, too: one at a time.
    CO_TRY(const VolumeTurns::Turn turn, co_await with_timeout(fail_after(), context_.cutting_turns.take(id())));
    bool is_ours = false;
    const auto take_over = [&](AttributePage& page) {
        is_ours = is_same_mark(page, seen);
        if (!is_ours) return false;
        ++page.zeroing_attempt;
        page.zeroing_host = cache_.self();
        page.zeroing_epoch = cache_.membership().process_of(cache_.self()).epoch;
        return true;
    };
    CO_TRY(const AttributePage after, co_await update_attributes(take_over));
    if (is_ours) CO_TRY_VOID(co_await zero_cut(after));
    co_return Result<>{};
}

}  // namespace tarn
