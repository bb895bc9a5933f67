// HomeFrames: home's bytes in memory: takes them from holders, gives them to requesters, decides what may leave.
//
// At most one frame per page has use_home; without one, home's bytes are those of the store. While such a frame is
// being stored it stays the page's home frame (`storing`), so that two writes of one page never race on the device:
// newer bytes are copied into it, and it is written again (HomeWriter).
#pragma once

#include <atomic>
#include <vector>

#include "coherence/executor/effects.hpp"
#include "coherence/executor/host_parts.hpp"
#include "coherence/pages/held_frames.hpp"
#include "coherence/pages/page_provider.hpp"

namespace tarn {

class HomeFrames {
  public:
    struct Parts : HostParts {
        HeldFrames& held_frames;
        const PageProvider& provider;
    };
    explicit HomeFrames(const Parts& parts);

    // Called under the latch of the page's stripe, see HomeStore.
    bool apply_copy(const protocol::Action& action);
    bool keep_copy(const protocol::Action& action);
    HomeStore::Found find(PageId page) const;
    bool share(FrameId found);
    void copy(HomeStore::Found found, FrameId into);
    // The last copy in any host's memory is about to go. True: this host's memory would drop an older page for it.
    bool wants_copy(const protocol::Message& message) const;
    // Fills in what home has of the event's page.
    void tell(protocol::Event& event) const;
    // Drops home's bytes from a frame that is not being stored. Returns whether it came free.
    bool forget(Frame& frame);

    // Drops a deleted volume's frames. Returns how many are being stored, and stay.
    size_t forget_volume(VolumeId volume);
    // Numbers of the pages in [first, end) homed here whose newest bytes are not in the store, in any order. Call it
    // before looking into the store: a page may get there meanwhile, and the other order would miss it.
    std::vector<uint64_t> pages_in_memory(VolumeId volume, uint64_t first, uint64_t end);

    FrameIndex& index() { return index_; }
    const FrameIndex& index() const { return index_; }
    // Frames whose bytes the store lacks.
    FrameSet& dirty() { return dirty_; }
    uint64_t last_copies_kept() const { return last_copies_kept_.load(std::memory_order_relaxed); }

  private:
    bool holder_has(const Frame& home, const protocol::PageVersion& coming) const;

    const Parts parts_;
    FrameIndex index_;
    FrameSet dirty_;
    std::atomic<uint64_t> last_copies_kept_{0};
};

}  // namespace tarn
