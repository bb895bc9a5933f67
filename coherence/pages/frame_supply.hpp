// FrameSupply: free frames, for local accesses, for home's bytes, and for what other hosts send.
//
// A reserve that accesses may not take is for bytes that other hosts send; only local writes refill it, so hosts that
// are full of each other's dirty pages cannot block each other. Any thread.
#pragma once

#include "coherence/fabric/peers.hpp"
#include "coherence/membership/membership.hpp"
#include "coherence/pages/frame_queue.hpp"
#include "tiers/dram/frame_pool.hpp"
#include "tiers/dram/replacement.hpp"
#include "utils/atomic.hpp"

namespace tarn {

class PageProvider;

class FrameSupply {
  public:
    // provider: runs when free frames are few.
    FrameSupply(FramePool& pool, Replacement& replacement, const Membership& membership, const Peers& peers,
                PageProvider& provider)
        : pool_(pool), replacement_(replacement), membership_(membership), peers_(peers), provider_(provider) {}

    // no_frame when only the reserve for bytes of others is left.
    FrameId take();
    void give(FrameId id);
    // waiter is posted with a frame once there is one, in the order of the calls.
    void wait(FrameWaiter& waiter);
    // False: it was posted.
    bool cancel(FrameWaiter& waiter) { return waiting_.cancel(waiter); }
    // Who waits for frames gets those that are free, or may be used now.
    void freed();
    bool anyone_waits() const { return !waiting_.empty(); }
    // As take(), past those who wait: a step of the protocol goes on with it.
    FrameId take_at_once() { return pool_.try_take(use_holder, reserve_count()); }

    // Memory to receive a page of this host into. Null: none is free, and its link hears when there may be.
    std::byte* lend(HostId from);

    // Shutdown: whoever waits, or will, gives up.
    void abandon() { waiting_.close(); }

  private:
    size_t reserve_count() const;
    size_t lending_reserve_count() const;

    FramePool& pool_;
    Replacement& replacement_;
    const Membership& membership_;
    const Peers& peers_;
    PageProvider& provider_;
    FrameQueue waiting_;
    Atomic<HostSet> starved_links_{0};  // their next message has a page, and no frame was free
};

}  // namespace tarn
