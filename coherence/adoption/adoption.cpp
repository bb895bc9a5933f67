#include "coherence/adoption/adoption.hpp"

#include <algorithm>
#include <cstring>

namespace tarn {

using protocol::Ownership;

Result<> Adoption::claim(Arena& arena, const Store& store) {
    ArenaHeader& header = arena.header();
    const auto epoch = static_cast<uint32_t>(store.home_epoch());
    if (header.store != store.uuid()) return fail(Errc::refused, 0, "arena: of another store");
    // Processes that ended during their start may lie between.
    const uint32_t last = header.epoch.load(std::memory_order_relaxed);
    if (last < store.used_before() || last >= epoch)
        return fail(Errc::refused, 0, "arena: another process has used the store since");
    // An older program does not say what it left open: it counts as in doubt.
    const bool is_known = header.past_known_to == last && header.last_in_doubt != 0 && header.last_in_doubt <= last &&
                          header.last_loss <= last;
    if (!is_known) header.last_in_doubt = header.last_loss = last;
    header.past_known_to = epoch;
    header.epoch.store(epoch, std::memory_order_release);
    return {};
}

size_t Adoption::run() {
    parts_.stripes.adopt_request_ids();
    finish_staged_writes();
    adopt_home_bytes();
    adopt_holdings();
    return adopted_page_count_;
}

// Their clients got no answer, but a page must not be half of one write and half of another.
void Adoption::finish_staged_writes() {
    for (WriteStage& stage : parts_.pool.arena().stages()) {
        stage.taken.store(false, std::memory_order_relaxed);
        const WriteStage::Pending pending = stage.pending.load(std::memory_order_relaxed);
        const std::span<const std::byte> landing = parts_.pool.arena().landing();
        const bool is_sane = stage.frame < parts_.pool.frame_count() && stage.offset <= page_size &&
                             stage.size <= page_size - stage.offset &&
                             (pending != WriteStage::Pending::landed ||
                              (stage.landed_at <= landing.size() && stage.size <= landing.size() - stage.landed_at));
        if (pending == WriteStage::Pending::nothing || !is_sane) continue;
        Frame& frame = parts_.pool.frame(stage.frame);
        const FrameRecord::State& state = parts_.pool.record(stage.frame).state();
        // A whole-page write into a frame without a record yet is not finished, but dropped with the frame.
        if (state.role == FrameRecord::Role::exclusive && state.page == stage.page) {
            std::byte* const bytes = parts_.pool.bytes(stage.frame) + stage.offset;
            if (pending == WriteStage::Pending::bytes) std::memcpy(bytes, stage.bytes, stage.size);
            if (pending == WriteStage::Pending::landed)
                std::memcpy(bytes, landing.data() + stage.landed_at, stage.size);
            if (pending == WriteStage::Pending::zeros) std::memset(bytes, 0, stage.size);
            parts_.pages.mark_written(frame, stage.offset, stage.size);
            frame.zeroed.store(pending == WriteStage::Pending::zeros && stage.size == page_size,
                               std::memory_order_relaxed);
            if (stage.receipt != 0) receipts_.push_back(stage.receipt);
        }
        stage.pending.store(WriteStage::Pending::nothing, std::memory_order_release);
    }
}

void Adoption::adopt_home_bytes() {
    for (FrameId id = 0; id < parts_.pool.frame_count(); ++id) {
        Frame& frame = parts_.pool.frame(id);
        if ((frame.uses.load(std::memory_order_relaxed) & use_home) == 0) continue;
        const PageId page = frame.page_id();
        Frame* const other = parts_.home.index().find_exactly(page);
        const auto position_of = [](const Frame& each) {
            return protocol::PageVersion{each.home_tenure, each.home_sequence};
        };
        if (parts_.membership.home_of(page) != parts_.membership.self() ||
            (other && position_of(*other) >= position_of(frame))) {
            frame.home_dirty = false;
            parts_.pool.release(id, use_home);
            continue;
        }
        if (other) parts_.home.forget(*other);
        parts_.home.index().insert(frame);
        if (!frame.home_dirty) continue;
        frame.home_mask = 0;  // the store may lack what it was given
        parts_.home.dirty().add(id);
        (void)parts_.store.reserve(page);  // as the previous process had
    }
}

void Adoption::adopt_holdings() {
    std::vector<FrameId> held;
    for (FrameId id = 0; id < parts_.pool.frame_count(); ++id)
        if ((parts_.pool.frame(id).uses.load(std::memory_order_relaxed) & use_holder) != 0) held.push_back(id);
    const auto page_of = [&](FrameId id) { return parts_.pool.frame(id).page_id(); };
    std::ranges::sort(held, {}, page_of);
    for (auto first = held.begin(); first != held.end();) {
        const PageId page = page_of(*first);
        const auto end = std::find_if(first, held.end(), [&](FrameId id) { return page_of(id) != page; });
        adopt_holding(page, {first, end});
        first = end;
    }
}

// Of several frames for one page the newest counts: the records of the others had not been ended yet.
void Adoption::adopt_holding(PageId page, std::span<const FrameId> frames) {
    FrameId held = no_frame;
    FrameId kept = no_frame;
    const auto state_of = [&](FrameId id) -> const FrameRecord::State& { return parts_.pool.record(id).state(); };
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
        if (id != held && id != kept) parts_.held_frames.release(id);

    protocol::Adopted adopted;
    if (held != no_frame) {
        Frame& frame = parts_.pool.frame(held);
        const FrameRecord::State& state = state_of(held);
        const DirtyMask dirty = Pages::unwritten(frame);
        frame.dirty.store(dirty, std::memory_order_relaxed);
        frame.writing.store(0, std::memory_order_relaxed);
        if (dirty != 0) parts_.pages.dirty_frames().add(held);
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
        parts_.pool.frame(kept).dirty.store(0, std::memory_order_relaxed);
        parts_.pool.frame(kept).writing.store(0, std::memory_order_relaxed);
        adopted.kept = {.frame = kept, .order = state.order, .tenure = state.tenure, .sequence = state.sequence};
    }
    ++adopted_page_count_;
    protocol::Event event = protocol::Event::about(protocol::Event::Kind::adopted, page);
    event.process = parts_.membership.process();
    event.adopted = &adopted;
    parts_.home.tell(event);
    Stripes::Turn turn(parts_.stripes, page);
    turn.step(event);
    TARN_ASSERT(turn.result().home_reads.empty() && turn.result().resumed.empty());
}

}  // namespace tarn
