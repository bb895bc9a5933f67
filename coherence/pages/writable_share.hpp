// WritableShare: limits how many frames hold pages that this host may write, for each other host as their home.
//
// Such a page may be dirty, and a dirty page leaves only when its home takes it. So the pages of one home must never
// fill all frames: while that home does not answer, accesses to other homes' pages must find frames (C4). One home's
// pages may take at most three times the frames that hold no writable page of any home (the dynamic threshold of
// Choudhury and Hahne, 1998): 3/4 of all frames if there is one such home, and less for each if there are more. If
// several homes stop answering, each leaves a quarter of the frames it finds to the others. A write that needs one more
// page of a home waits here until another page of that home has left: it waits for no other home than its own.
//
// An access counts from before it asks the protocol until it ends; a frame counts from when its page is writable until
// it no longer holds the page. Any thread may call it.
#pragma once

#include <array>

#include "coherence/membership/host_set.hpp"
#include "coherence/pages/frame_queue.hpp"
#include "utils/atomic.hpp"

namespace tarn {

class WritableShare {
  public:
    explicit WritableShare(size_t frame_count);

    // Counts one more page of this home, unless the home has its share.
    bool try_enter(HostId home);
    // Counts one in any case: the page is writable already.
    void enter(HostId home);
    void leave(HostId home);

    // begin_leaving: a page of the home is leaving, and still counts. stay: it stays after all, or is about to leave().
    void begin_leaving(HostId home);
    void stay(HostId home);

    // Posts the waiter once it has entered, or must give up.
    void wait(FrameWaiter& waiter, HostId home);
    // False: it was posted.
    bool cancel(FrameWaiter& waiter, HostId home);
    bool anyone_waits_for(HostId home) const { return !queues_[home].empty(); }
    // Lets all waiters in, beyond the share: the home's store has failed, and they must hear that.
    void let_in_all(HostId home);
    bool anyone_waits() const { return waiting_.load(std::memory_order_seq_cst) != 0; }
    void close();

    // The home is so near its share, not counting leaving pages, that some of its pages should go.
    bool is_crowded(HostId home) const;
    bool any_is_crowded(HostSet homes) const;
    size_t count(HostId home) const { return counts_[home].load(std::memory_order_relaxed); }

  private:
    bool fits(size_t of_home, size_t of_all) const;
    void serve();

    size_t frame_count_;
    size_t margin_;  // frames below its share at which a home is crowded
    Atomic<size_t> total_{0};
    std::array<Atomic<size_t>, hosts_max> counts_{};
    Atomic<size_t> total_leaving_{0};
    std::array<Atomic<size_t>, hosts_max> leaving_{};
    Atomic<size_t> waiting_{0};  // at least as many as are queued, until the queues close
    std::array<FrameQueue, hosts_max> queues_;
};

}  // namespace tarn
