// HeldFrames: performs a step's actions on the frames in which this host holds pages: who may enter them, which of
// their bytes are dirty, when they come free.
#pragma once

#include <atomic>

#include "coherence/executor/effects.hpp"
#include "coherence/executor/stripes.hpp"
#include "coherence/pages/frame_supply.hpp"
#include "coherence/pages/pages.hpp"
#include "coherence/pages/writable_share.hpp"
#include "utils/task.hpp"

namespace tarn {

class HeldFrames final : public Frames {
  public:
    struct Parts {
        const Membership& membership;
        FramePool& pool;
        Pages& pages;
        Stripes& stripes;
        FrameSupply& supply;
        WritableShare& writable_share;
        PageProvider& provider;
    };
    HeldFrames(const Parts& parts, const protocol::WriteLease& lease) : parts_(parts), lease_(lease) {}

    Quiet quiesce(PageId page, FrameId frame, bool recalled) override;
    DirtyMask unwritten_of(FrameId id) override { return Pages::unwritten(frame_of(id)); }
    void set_access(PageId page, FrameId frame, protocol::Ownership ownership, uint32_t lost) override;
    void begin_writing(FrameId frame) override;
    void clear_writing(FrameId frame) override;
    void clear_dirty(FrameId frame) override;
    void mark_dirty(FrameId frame) override;
    bool release(FrameId frame) override;
    uint32_t age_of(FrameId id) override { return parts_.pages.replacement().age_of(frame_of(id)); }
    void keep_lease(PageId page, FrameId frame) override;
    void freed() override { parts_.supply.freed(); }

    // The event that tells a page's stripe that the last latch of its frame is gone.
    static protocol::Event quiesced(const Frame& frame, PageId page) {
        return protocol::Event::quiesced_of(page, Pages::unwritten(frame));
    }
    // For how many turns of a loop local writes went on while another host waited.
    uint64_t turns_leased() const { return turns_leased_.load(std::memory_order_relaxed); }

  private:
    // A page that another host waits for, and that this host may still write for a while.
    struct Recalled {
        PageId page;
        FrameId frame = no_frame;
        uint32_t version = 0;  // of the frame's word, when last seen
    };
    Task<> yield_lease(Recalled recalled);
    void count_writable(Frame& frame, bool writable);
    Frame& frame_of(FrameId id) { return parts_.pool.frame(id); }

    const Parts parts_;
    const protocol::WriteLease lease_;
    std::atomic<uint64_t> turns_leased_{0};
};

}  // namespace tarn
