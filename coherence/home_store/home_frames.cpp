#include "coherence/home_store/home_frames.hpp"

#include <cstring>

namespace tarn {

using protocol::Action;
using protocol::Message;

HomeFrames::HomeFrames(const Parts& parts)
    : parts_(parts), index_(parts.pool, Stripes::bits, &Frame::home_next), dirty_(parts.pool.frame_count()) {}

bool HomeFrames::apply_copy(const Action& action) {
    bool freed = false;
    Frame& given = parts_.pool.frame(action.frame);
    // Its owner could not read the page, so it changed nothing: what the store has is as new, and may yet be read.
    if (given.broken.load(std::memory_order_relaxed))
        return !action.borrowed && parts_.held_frames.release(action.frame);
    const auto label = [&](Frame& frame) {
        if (!frame.home_dirty)
            frame.home_mask = action.mask;
        else if (frame.home_mask != 0)
            frame.home_mask = action.mask == 0 ? DirtyMask{0} : static_cast<DirtyMask>(frame.home_mask | action.mask);
        frame.home_dirty = true;
        // In this order: the process may be killed between any two, and home must not take its bytes for newer than
        // they are.
        std::atomic_ref(frame.home_sequence).store(0, std::memory_order_release);
        std::atomic_ref(frame.home_tenure).store(action.tenure, std::memory_order_release);
        std::atomic_ref(frame.home_sequence).store(action.sequence, std::memory_order_release);
    };
    Frame* home = index_.find_exactly(action.page);
    // Bytes that the store lacks stay in their frame: a flush under way has noted that frame.
    if (home && home != &given && (home->storing != Storing::no || home->home_dirty)) {
        if (!holder_has(*home, {action.tenure, action.sequence})) {
            std::memcpy(parts_.pool.bytes(parts_.pool.id_of(*home)), parts_.pool.bytes(action.frame), page_size);
            home->zeroed.store(given.zeroed.load(std::memory_order_relaxed), std::memory_order_relaxed);
        }
        if (!action.borrowed) freed |= parts_.held_frames.release(action.frame);
    } else if (home != &given) {
        if (home) freed |= forget(*home);
        // A borrowed frame serves both its holder and home: home's bytes are at least as new as home believes.
        home = &given;
        home->page.store(action.page.value, std::memory_order_release);
        label(*home);  // before it counts as home's: the process may be killed here
        home->uses.fetch_or(use_home, std::memory_order_release);
        index_.insert(*home);
        if (!action.borrowed) freed |= parts_.held_frames.release(action.frame);
    }
    label(*home);
    ++home->home_version;
    if (home->storing == Storing::taken) home->storing = Storing::begun;
    dirty_.add(parts_.pool.id_of(*home));
    return freed;
}

// Home's frame may be the one in which our Holder has the page. A tenure begins with all bytes of before it: if those
// that come are older, they are in the frame already, and copying them would undo what the Holder has written since
// (C1). The label then says less than the frame has, as with a frame that is borrowed.
bool HomeFrames::holder_has(const Frame& home, const protocol::PageVersion& coming) const {
    const FrameRecord::State& held = parts_.pool.record(parts_.pool.id_of(home)).state();
    const protocol::PageVersion kept{held.tenure, held.sequence};
    switch (held.role) {
        case FrameRecord::Role::none: return false;
        case FrameRecord::Role::kept: return coming <= kept;
        case FrameRecord::Role::shared:
        case FrameRecord::Role::exclusive: return coming <= protocol::last_before(held.tenure);
    }
    return false;
}

bool HomeFrames::wants_copy(const Message& message) const {
    if (message.kind != protocol::MessageKind::evict || index_.find_exactly(message.page) ||
        parts_.pages.index().find_exactly(message.page))
        return false;
    return parts_.pool.free_count() > parts_.provider.low_mark() ||
           message.hosts < parts_.pages.replacement().victim_age();
}

bool HomeFrames::keep_copy(const Action& action) {
    if (action.borrowed) return false;
    if (!index_.find_exactly(action.page)) {
        Frame& frame = parts_.pool.frame(action.frame);
        frame.page.store(action.page.value, std::memory_order_release);
        frame.home_tenure = 0;  // the store's bytes
        frame.uses.fetch_or(use_home, std::memory_order_release);
        index_.insert(frame);
        last_copies_kept_.fetch_add(1, std::memory_order_relaxed);
    }
    return parts_.held_frames.release(action.frame);
}

bool HomeFrames::forget(Frame& frame) {
    TARN_ASSERT(frame.storing == Storing::no);
    index_.erase(frame);
    frame.home_dirty = false;
    dirty_.remove(parts_.pool.id_of(frame));
    return parts_.pool.release(parts_.pool.id_of(frame), use_home);
}

HomeStore::Found HomeFrames::find(PageId page) const {
    const Frame* source = index_.find_exactly(page);
    if (!source) source = parts_.pages.index().find_exactly(page);  // a reader's frame holds what home has
    if (source && !source->broken.load(std::memory_order_relaxed))
        return {.where = HomeStore::Found::Where::frame, .frame = parts_.pool.id_of(*source)};
    return {.where = parts_.store.present(page) ? HomeStore::Found::Where::store : HomeStore::Found::Where::zeros};
}

bool HomeFrames::share(FrameId found) {
    Frame& frame = parts_.pool.frame(found);
    if ((frame.uses.load(std::memory_order_relaxed) & use_holder) != 0) return false;
    frame.uses.fetch_or(use_holder, std::memory_order_relaxed);
    return true;
}

void HomeFrames::copy(HomeStore::Found found, FrameId into) {
    if (found.where == HomeStore::Found::Where::frame)
        std::memcpy(parts_.pool.bytes(into), parts_.pool.bytes(found.frame), page_size);
    else
        std::memset(parts_.pool.bytes(into), 0, page_size);
}

std::vector<uint64_t> HomeFrames::pages_in_memory(VolumeId volume, uint64_t first, uint64_t end) {
    constexpr uint64_t looked_up_max = 4096;  // above this, one walk over all frames is cheaper
    std::vector<uint64_t> numbers;
    const auto is_zero = [](const Frame* frame) { return frame && frame->zeroed.load(std::memory_order_relaxed); };
    // Both checks under one latch: the newest bytes may move between their owner and home.
    const auto is_in_memory = [&](PageId page, const protocol::Claim* claim) {
        if (claim && !claim->home_has_bytes())
            return claim->owner != parts_.membership.self() || !is_zero(parts_.pages.index().find_exactly(page));
        const Frame* const home = index_.find_exactly(page);
        return home && home->home_dirty && !is_zero(home);
    };
    const auto add = [&](PageId page, const protocol::Claim* claim) {
        if (is_in_memory(page, claim)) numbers.push_back(page.number());
    };
    if (end - first <= looked_up_max) {
        for (uint64_t number = first; number < end; ++number) {
            const PageId page = PageId::of(volume, number);
            const Stripes::Turn turn(parts_.stripes, page);
            add(page, turn.home().find(page));
        }
        return numbers;
    }
    const auto is_asked = [&](PageId page) {
        return page.volume() == volume && page.number() >= first && page.number() < end;
    };
    for (unsigned i = 0; i < Stripes::count; ++i) {
        const Stripes::Turn turn(parts_.stripes, i);
        const protocol::Home& home = turn.home();
        home.for_each([&](PageId page, const protocol::Claim& claim) {
            if (is_asked(page)) add(page, &claim);
        });
        index_.for_each(i, [&](const Frame& frame) {
            if (is_asked(frame.page_id()) && !home.find(frame.page_id())) add(frame.page_id(), nullptr);
        });
    }
    return numbers;
}

void HomeFrames::tell(protocol::Event& event) const {
    const Frame* const home = index_.find_exactly(event.page);
    if (home && home->home_tenure != 0) {
        event.stored_tenure = home->home_tenure;
        event.stored_sequence = home->home_sequence;
    } else if (parts_.membership.home_of(event.page) == parts_.membership.self()) {
        event.stored_tenure = parts_.store.tenure_of(event.page);
    }
}

size_t HomeFrames::forget_volume(VolumeId volume) {
    size_t storing = 0;
    for (FrameId id = 0; id < parts_.pool.frame_count(); ++id) {
        Frame& frame = parts_.pool.frame(id);
        const PageId page = frame.page_id();
        if (page.volume() != volume || (frame.uses.load(std::memory_order_relaxed) & use_home) == 0) continue;
        Stripes::Turn turn(parts_.stripes, page);
        if (index_.find_exactly(page) != &frame) continue;
        if (frame.storing == Storing::no)
            turn.result().frames_freed |= forget(frame);
        else
            ++storing;
    }
    return storing;
}

}  // namespace tarn
