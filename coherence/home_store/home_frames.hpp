// HomeFrames: home's bytes in memory: what arrives from holders, what requesters get, what may leave.
//
// At most one frame per page has use_home; without one the store's bytes are home's. While such a frame is on its way
// into the store it stays the page's home frame (`storing`), so that two writes of one page never race on the device:
// newer bytes are copied into it, and it is written again (HomeWriter).
#pragma once

#include <atomic>
#include <vector>

#include "coherence/executor/effects.hpp"
#include "coherence/executor/stripes.hpp"
#include "coherence/membership/membership.hpp"
#include "coherence/pages/held_frames.hpp"
#include "coherence/pages/page_provider.hpp"
#include "coherence/pages/pages.hpp"

namespace tarn {

class HomeFrames {
  public:
    struct Parts {
        const Membership& membership;
        Store& store;
        FramePool& pool;
        Pages& pages;
        Stripes& stripes;
        HeldFrames& held_frames;
        const PageProvider& provider;
    };
    explicit HomeFrames(const Parts& parts);

    // Under the latch of the page's stripe: as HomeStore says.
    bool apply_copy(const protocol::Action& action);
    bool keep_copy(const protocol::Action& action);
    HomeStore::Found find(PageId page) const;
    bool share(FrameId found);
    void copy(HomeStore::Found found, FrameId into);
    // The last copy in any host's memory is about to go: would ours drop something older for it?
    bool wants_copy(const protocol::Message& message) const;
    // What home has of the event's page.
    void tell(protocol::Event& event) const;
    // Of a frame that is not on its way into the store. Whether it came free.
    bool forget(Frame& frame);

    // Of a deleted volume. How many of its frames are on their way into the store, and stay.
    size_t forget_volume(VolumeId volume);
    // Numbers of the pages in [first, end) homed here whose newest bytes are not in the store, in any order. Ask it
    // before the store: a page may get there meanwhile, and is then nowhere for who asks the other way round.
    std::vector<uint64_t> pages_in_memory(VolumeId volume, uint64_t first, uint64_t end);

    FrameIndex& index() { return index_; }
    const FrameIndex& index() const { return index_; }
    // Frames whose bytes the store lacks.
    FrameSet& dirty() { return dirty_; }
    uint64_t last_copies_kept() const { return last_copies_kept_.load(std::memory_order_relaxed); }

  private:
    const Parts parts_;
    FrameIndex index_;
    FrameSet dirty_;
    std::atomic<uint64_t> last_copies_kept_{0};
};

}  // namespace tarn
