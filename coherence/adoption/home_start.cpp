#include "coherence/adoption/home_start.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "utils/clock.hpp"
#include "utils/log.hpp"

namespace tarn {

namespace {
constexpr std::chrono::milliseconds record_again_after{500};
}

void HomeStart::go_on() {
    if (parts_.stripes.abandoned()) return;  // the loop takes no new tasks any more
    for (;;) {
        const Recovery::Moment moment = parts_.membership.moment();
        const bool all_marked = parts_.membership.is_alone() || !parts_.home_store.marker().lacks_any(pages_to_mark());
        Recovery::Next next{};
        {
            const auto alone = hold_off();
            next = parts_.membership.next(moment, all_marked);
            if (next == Recovery::Next::serve) tell_stripes();
        }
        switch (next) {
            case Recovery::Next::wait: return;
            case Recovery::Next::look_again: continue;
            case Recovery::Next::record: return Loop::current()->spawn(record_and_go_on());
            case Recovery::Next::serve: parts_.flusher.on_recovered(); return parts_.membership.changed().announce();
        }
    }
}

void HomeStart::tell_stripes() {
    protocol::Event recovered;
    recovered.kind = protocol::Event::Kind::recovered;
    recovered.has_memory = parts_.membership.has_memory();
    std::vector<protocol::LossRange> on_record;
    for (const Loss& loss : parts_.store.losses())
        on_record.push_back({.first = loss.first, .last = loss.last, .generation = loss.generation});
    losses_before_ = protocol::LossRanges(on_record);
    recovered.losses = &losses_before_;
    parts_.stripes.step_all(recovered);
}

// The pages homed here that hosts have reported to hold. A holder of a page has its newest bytes.
std::vector<PageId> HomeStart::held_pages() {
    std::vector<PageId> held;
    parts_.stripes.for_each([&](const Stripes::Turn& turn) {
        turn.home().for_each([&](PageId page, const protocol::Claim& claim) {
            if (claim.holders() != 0) held.push_back(page);
        });
    });
    return held;
}

// Pages that somebody may write, and pages whose newest bytes only home's memory has.
std::vector<PageId> HomeStart::pages_to_mark() {
    std::vector<PageId> pages = held_pages();
    parts_.home_store.frames().dirty().for_each([&](FrameId id) { pages.push_back(parts_.pool.frame(id).page_id()); });
    return pages;
}

// Before this home serves, possible losses are recorded, and pages that may be lost from now on are marked.
//
// The bytes that only the previous process's memory had are gone; or, while this home knew no claims, another host may
// have lost writes to its pages. Nobody knows which pages, only that they are marked, and not held anywhere.
Task<> HomeStart::record_and_go_on() {
    for (bool said = false;;) {
        const Membership::Lack lack = parts_.membership.lack();
        Result<> done;
        if (lack.losses) done = co_await record_possible_losses();
        if (done) done = co_await parts_.store.mark_nothing_but(*Loop::current(), pages_to_mark());
        if (done) {
            if (parts_.membership.recorded(lack.moment, lack.losses)) break;
            continue;
        }
        // The home stays unavailable: these pages must not be served.
        if (!std::exchange(said, true))
            log::error("store: that writes may be lost could not be recorded: {}; this home waits until it is",
                       log::describe(done.error()));
        co_await Loop::current()->sleep(record_again_after);
        if (parts_.stripes.abandoned()) co_return;
    }
    go_on();
}

Task<Result<>> HomeStart::record_possible_losses() {
    const bool is_own = parts_.membership.memory_was_lost();
    std::vector<Loss> losses;
    uint64_t pages = 0;
    bool any = false;
    for (const protocol::LossRange& range :
         protocol::without(parts_.home_store.marker().possibly_lost(), held_pages())) {
        const bool is_precise = range.first.volume() == range.last.volume();
        losses.push_back({.first = range.first,
                          .last = range.last,
                          .page_count = is_precise ? range.last.value - range.first.value + 1 : 0,
                          .at_ns = realtime_ns(),
                          .host = is_own ? parts_.membership.self() : no_host});
        pages += losses.back().page_count;
        any |= !is_precise;
    }
    CO_TRY(const uint32_t recorded, co_await parts_.store.record_losses(*Loop::current(), std::move(losses)));
    log::error(
        "{}: writes that were not flushed may be lost, of {} of this home that no host holds; clients from before get "
        "I/O errors for them (loss generation {})",
        is_own ? "what the process before had not made durable is gone"
               : "another host lost its memory while this one was being restarted",
        any ? "any page" : fmt::format("{} pages", pages), recorded);
    co_return Result<>{};
}

Task<Result<>> HomeStart::ended() {
    Broadcast& changed = parts_.membership.changed();
    for (uint64_t seen = changed.count(); parts_.membership.recovering(); seen = changed.count()) {
        if (parts_.stripes.abandoned()) co_return fail(Errc::unavailable, 0, "recovery: stopping");
        co_await changed.next(seen);
    }
    co_return Result<>{};
}

}  // namespace tarn
