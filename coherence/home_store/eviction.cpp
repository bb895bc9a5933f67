#include "coherence/home_store/eviction.hpp"

namespace tarn {

bool Eviction::drop_clean(FrameId id, bool any) {
    Frame& frame = parts_.pool.frame(id);
    const PageId page = frame.page_id();
    if ((frame.uses.load(std::memory_order_relaxed) & use_holder) == 0 || Pages::is_dirty(frame)) return false;
    if (parts_.membership.home_of(page) == parts_.membership.self()) return false;
    if (!any && describes_volumes(page)) return false;
    Stripes::Turn turn(parts_.stripes, page);
    const protocol::Holding* const holding = turn.holder().find(page);
    if (parts_.stripes.abandoned() || holding == nullptr || holding->frame != id) return false;
    turn.step(protocol::Event::evict_at_once(page));
    return turn.result().frames_freed;
}

bool Eviction::try_evict(FrameId id, std::vector<FrameId>& to_store) {
    Frame& frame = parts_.pool.frame(id);
    const PageId page = frame.page_id();
    // Checked without the latch: nearly all frames may be of this kind.
    if (parts_.membership.any_store_failed() && (parts_.home.dirty().has(id) || parts_.pages.dirty_frames().has(id)) &&
        parts_.membership.store_failed_at(parts_.membership.home_of(page)))
        return false;
    Stripes::Turn turn(parts_.stripes, page);
    if (parts_.stripes.abandoned() || frame.page_id() != page) return false;
    if (page.volume() == catalog_volume && Pages::is_dirty(frame))
        return false;  // it is stored with its group, or not at all
    // An unreachable home cannot answer, and pages seen here meanwhile must still be held when it is back (add_note).
    const HostId home = parts_.membership.home_of(page);
    const bool is_away =
        home != parts_.membership.self() && !(contains(turn.links().up, home) && parts_.peers.fabric()->linked(home));
    // A dirty page leaves with its bytes, which would only wait elsewhere.
    const bool would_wait = home != parts_.membership.self() && !is_away && Pages::is_dirty(frame) &&
                            parts_.peers.fabric()->congested(home);
    bool evicted = false;
    if (frame.cached.load(std::memory_order_relaxed) && !is_away && !would_wait) {
        turn.step(protocol::Event::about(protocol::Event::Kind::evict, page));
        evicted = !frame.cached.load(std::memory_order_relaxed);
    }
    const uint8_t uses = frame.uses.load(std::memory_order_acquire);
    if (uses == use_home && frame.page_id() == page && frame.storing == Storing::no) {
        evicted = true;
        if (frame.home_dirty) {
            frame.storing = Storing::begun;
            to_store.push_back(id);
        } else {
            turn.result().frames_freed |= parts_.home.forget(frame);
        }
    }
    return evicted;
}

}  // namespace tarn
