// The arena as the process's testament: what is recorded in it while this process lives, and what is taken from it when
// another has died (D2).
//
// An adopted host does not resume, it reports: frames are what their records say, unserved until the page's home has
// confirmed them; requests, orders and questions under way are gone, and asked anew by whoever still waits. As a home
// it has its bytes, and learns from everybody's reports who holds what, as after any start.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "coherence/cache/cache.hpp"
#include "coherence/cache/page_access.hpp"
#include "utils/clock.hpp"
#include "utils/log.hpp"

namespace tarn {

using protocol::Ownership;
using protocol::Process;

namespace {
constexpr std::chrono::milliseconds record_again_after{500};
}

// After each step, before anybody is told of it.
void Cache::record(const protocol::Holder& holder, const protocol::Event& event) {
    const bool is_about_page = event.kind != protocol::Event::Kind::peer_up &&
                               event.kind != protocol::Event::Kind::host_forgotten &&
                               event.kind != protocol::Event::Kind::recovered;
    if (!is_about_page)
        holder.for_each([&](PageId page, const protocol::Holding& each) { record_holding(page, each); });
    else if (const protocol::Holding* const holding = holder.find(event.page))
        record_holding(event.page, *holding);
}

void Cache::record_holding(PageId page, const protocol::Holding& holding) {
    const auto state_of = [&](const protocol::FrameHeld& held, FrameRecord::Role role) {
        return FrameRecord::State{.page = page.value,
                                  .tenure = held.tenure,
                                  .order = held.order,
                                  .anchor_since = held.anchor_since,
                                  .sequence = held.sequence,
                                  .lost = held.lost,
                                  .evict_id = held.evict_id,
                                  .role = role};
    };
    const protocol::Adopted recorded = holding.recorded();
    if (recorded.held.frame != no_frame)
        record_frame(recorded.held.frame, state_of(recorded.held, recorded.held.ownership == Ownership::exclusive
                                                                      ? FrameRecord::Role::exclusive
                                                                      : FrameRecord::Role::shared));
    if (recorded.kept.frame != no_frame)
        record_frame(recorded.kept.frame, state_of(recorded.kept, FrameRecord::Role::kept));
}

void Cache::record_frame(FrameId id, const FrameRecord::State& state) {
    FrameRecord& record = pool_->record(id);
    if (record.state() != state) record.set(state);
}

Result<> Cache::claim_arena(Arena& arena, const Store& store) {
    ArenaHeader& header = arena.header();
    const auto epoch = static_cast<uint32_t>(store.home_epoch());
    if (header.store != store.uuid()) return fail(Errc::refused, 0, "arena: of another store");
    // Processes that ended as they started may lie between.
    const uint32_t last = header.epoch.load(std::memory_order_relaxed);
    if (last < store.used_before() || last >= epoch)
        return fail(Errc::refused, 0, "arena: another process has used the store since");
    header.epoch.store(epoch, std::memory_order_release);
    return {};
}

// Nothing is linked yet, and no other thread knows of this cache.
void Cache::adopt() {
    stripes_.adopt_request_ids();
    finish_staged_writes();
    adopt_home_bytes();
    adopt_holdings();
}

// Their clients were not answered, but a page must not be half of one write and half of another.
void Cache::finish_staged_writes() {
    for (WriteStage& stage : pool_->arena().stages()) {
        stage.taken.store(false, std::memory_order_relaxed);
        const WriteStage::Pending pending = stage.pending.load(std::memory_order_relaxed);
        const bool is_sane =
            stage.frame < pool_->frame_count() && stage.offset <= page_size && stage.size <= page_size - stage.offset;
        if (pending == WriteStage::Pending::nothing || !is_sane) continue;
        Frame& frame = pool_->frame(stage.frame);
        const FrameRecord::State& state = pool_->record(stage.frame).state();
        // A whole-page write into a frame that was not recorded yet is not finished, but dropped with it.
        if (state.role == FrameRecord::Role::exclusive && state.page == stage.page) {
            std::byte* const bytes = pool_->bytes(stage.frame) + stage.offset;
            if (pending == WriteStage::Pending::bytes)
                std::memcpy(bytes, stage.bytes, stage.size);
            else
                std::memset(bytes, 0, stage.size);
            pages_.mark_written(frame, stage.offset, stage.size);
            frame.zeroed.store(pending == WriteStage::Pending::zeros && stage.size == page_size,
                               std::memory_order_relaxed);
        }
        stage.pending.store(WriteStage::Pending::nothing, std::memory_order_release);
    }
}

void Cache::adopt_home_bytes() {
    for (FrameId id = 0; id < pool_->frame_count(); ++id) {
        Frame& frame = pool_->frame(id);
        if ((frame.uses.load(std::memory_order_relaxed) & use_home) == 0) continue;
        const PageId page = frame.page_id();
        Frame* const other = homes_.find_exactly(page);
        const auto position_of = [](const Frame& each) {
            return protocol::PageVersion{each.home_tenure, each.home_sequence};
        };
        if (home_of(page) != self() || (other && position_of(*other) >= position_of(frame))) {
            frame.home_dirty = false;
            pool_->release(id, use_home);
            continue;
        }
        if (other) forget_home_bytes(*other);
        homes_.insert(frame);
        if (!frame.home_dirty) continue;
        frame.home_mask = 0;  // whatever the store was given, it may not have
        home_dirty_frames_.add(id);
        (void)store_.reserve(page);  // as the process before had
    }
}

void Cache::adopt_holdings() {
    std::vector<FrameId> held;
    for (FrameId id = 0; id < pool_->frame_count(); ++id)
        if ((pool_->frame(id).uses.load(std::memory_order_relaxed) & use_holder) != 0) held.push_back(id);
    const auto page_of = [&](FrameId id) { return pool_->frame(id).page_id(); };
    std::ranges::sort(held, {}, page_of);
    for (auto first = held.begin(); first != held.end();) {
        const PageId page = page_of(*first);
        const auto end = std::find_if(first, held.end(), [&](FrameId id) { return page_of(id) != page; });
        adopt_holding(page, {first, end});
        first = end;
    }
}

// Of several frames for one page all but the newest are of records that had not ended yet.
void Cache::adopt_holding(PageId page, std::span<const FrameId> frames) {
    FrameId held = no_frame;
    FrameId kept = no_frame;
    const auto state_of = [&](FrameId id) -> const FrameRecord::State& { return pool_->record(id).state(); };
    for (const FrameId id : frames) {
        if (state_of(id).role != FrameRecord::Role::kept) {
            if (held == no_frame || state_of(id).tenure > state_of(held).tenure) held = id;
        } else if (kept == no_frame || state_of(id).order > state_of(kept).order) {
            kept = id;
        }
    }
    if (held != no_frame && kept != no_frame) {
        if (state_of(held).tenure < state_of(kept).order)
            held = no_frame;
        else if (state_of(held).role == FrameRecord::Role::exclusive)
            kept = no_frame;
    }
    for (const FrameId id : frames)
        if (id != held && id != kept) held_frames_.release(id);

    protocol::Adopted adopted;
    if (held != no_frame) {
        Frame& frame = pool_->frame(held);
        const FrameRecord::State& state = state_of(held);
        const DirtyMask dirty = Pages::unwritten(frame);
        frame.dirty.store(dirty, std::memory_order_relaxed);
        frame.writing.store(0, std::memory_order_relaxed);
        if (dirty != 0) pages_.dirty_frames().add(held);
        adopted.held = {
            .frame = held,
            .ownership = state.role == FrameRecord::Role::exclusive ? Ownership::exclusive : Ownership::shared,
            .tenure = state.tenure,
            .sequence = state.sequence,
            .lost = state.lost,
            .evict_id = state.evict_id,
            .anchor_since = state.anchor_since,
            .dirty = dirty};
    }
    if (kept != no_frame) {
        const FrameRecord::State& state = state_of(kept);
        pool_->frame(kept).dirty.store(0, std::memory_order_relaxed);
        pool_->frame(kept).writing.store(0, std::memory_order_relaxed);
        adopted.kept = {.frame = kept, .order = state.order, .tenure = state.tenure, .sequence = state.sequence};
    }
    ++adopted_page_count_;
    protocol::Event event = protocol::Event::about(protocol::Event::Kind::adopted, page);
    event.process = membership_.process();
    event.adopted = &adopted;
    say_what_home_has(event);
    Stripes::Turn turn(stripes_, page);
    turn.step(event);
    TARN_ASSERT(turn.result().home_reads.empty() && turn.result().resumed.empty());
}

// Under the latch of the page's stripe.
void Cache::say_what_home_has(protocol::Event& event) {
    const Frame* const home = homes_.find_exactly(event.page);
    if (home && home->home_tenure != 0) {
        event.stored_tenure = home->home_tenure;
        event.stored_sequence = home->home_sequence;
    } else if (home_of(event.page) == self()) {
        event.stored_tenure = store_.tenure_of(event.page);
    }
}

// Of the pages homed here, as far as hosts have reported. Who holds a page has the newest there is of it.
std::vector<PageId> Cache::held_pages() {
    std::vector<PageId> held;
    stripes_.for_each([&](const Stripes::Turn& turn) {
        turn.home().for_each([&](PageId page, const protocol::Claim& claim) {
            if (claim.holders() != 0) held.push_back(page);
        });
    });
    return held;
}

// Those that somebody may write, and those whose newest bytes only home's memory has.
std::vector<PageId> Cache::pages_to_mark() {
    std::vector<PageId> pages = held_pages();
    home_dirty_frames_.for_each([&](FrameId id) { pages.push_back(pool_->frame(id).page_id()); });
    return pages;
}

// Before this home serves: what may be lost is on record, and what may be lost from here on is marked.
//
// What only the memory of the process before had is gone; or, while this home knew no claims, another host may have
// lost writes to its pages. Nobody can say which pages that are, but that they are marked, and not held anywhere.
Task<> Cache::record_and_recover() {
    for (bool said = false;;) {
        const Membership::Lack lack = membership_.lack();
        Result<> done;
        if (lack.losses) done = co_await record_possible_losses();
        if (done) done = co_await store_.mark_nothing_but(*Loop::current(), pages_to_mark());
        if (done) {
            if (membership_.recorded(lack.moment, lack.losses)) break;
            continue;
        }
        // What must not be served is not served.
        if (!std::exchange(said, true))
            log::error("store: that writes may be lost could not be recorded: {}; this home waits until it is",
                       log::describe(done.error()));
        co_await Loop::current()->sleep(record_again_after);
        if (abandoned()) co_return;
    }
    recover_if_all_have_reported();
}

Task<Result<>> Cache::record_possible_losses() {
    const bool is_own = membership_.memory_was_lost();
    std::vector<Loss> losses;
    uint64_t pages = 0;
    bool any = false;
    for (const protocol::LossRange& range : protocol::without(marker_.possibly_lost(), held_pages())) {
        const bool is_precise = range.first.volume() == range.last.volume();
        losses.push_back({.first = range.first,
                          .last = range.last,
                          .page_count = is_precise ? range.last.value - range.first.value + 1 : 0,
                          .at_ns = realtime_ns(),
                          .host = is_own ? self() : no_host});
        pages += losses.back().page_count;
        any |= !is_precise;
    }
    CO_TRY(const uint32_t recorded, co_await store_.record_losses(*Loop::current(), std::move(losses)));
    log::error(
        "{}: writes that were not flushed may be lost, of {} of this home that no host holds; clients from before get "
        "I/O errors for them (loss generation {})",
        is_own ? "what the process before had not made durable is gone"
               : "another host lost its memory while this one was being restarted",
        any ? "any page" : fmt::format("{} pages", pages), recorded);
    co_return Result<>{};
}

}  // namespace tarn
