// WritableShare: how many frames hold pages that this host may write, for each other host that is their home.
//
// Such a page may be dirty, and a dirty page leaves only when its home takes it. So the pages of one home must never
// fill all frames: while that home does not answer, accesses to other homes' pages must find frames (C4). A home may
// have at most three times as many frames as hold no writable page of any home (the dynamic threshold of Choudhury and
// Hahne, 1998): 3/4 of all if it is the only one, and less for each, the more homes there are. If several homes stop
// answering, each leaves a quarter of the remaining frames to the others. A write that needs one more page of a home
// waits here until another page of that home has left: it waits for no other home than its own.
//
// An access has room from before it asks the protocol until it ends; a frame, once the page is writable, until it
// holds the page no more. Any thread may call it.
#pragma once

#include <array>

#include "coherence/membership/host_set.hpp"
#include "coherence/pages/frame_queue.hpp"
#include "utils/atomic.hpp"

namespace tarn {

class WritableShare {
  public:
    explicit WritableShare(size_t frame_count);

    // For one more page of this home, unless it has its share.
    bool try_enter(HostId home);
    // In any case: the page is writable already.
    void enter(HostId home);
    void leave(HostId home);

    // A page of the home is on its way out, and still counts; or it stays after all, or is about to leave.
    void begin_leaving(HostId home);
    void stay(HostId home);

    // The waiter is posted once it has entered, or must give up.
    void wait(FrameWaiter& waiter, HostId home);
    // False: it was posted.
    bool cancel(FrameWaiter& waiter, HostId home);
    bool anyone_waits_for(HostId home) const { return !queues_[home].empty(); }
    // Whatever the share: its store has failed, and who waits is to hear that.
    void let_in_all(HostId home);
    bool anyone_waits() const { return waiting_.load(std::memory_order_seq_cst) != 0; }
    void close();

    // So near its share, but for what is leaving, that some of its pages should go.
    bool is_crowded(HostId home) const;
    bool any_is_crowded(HostSet homes) const;
    size_t count(HostId home) const { return counts_[home].load(std::memory_order_relaxed); }

  private:
    bool fits(size_t of_home, size_t of_all) const;
    void serve();

    size_t frame_count_;
    size_t margin_;  // frames: so near its share a home is crowded
    Atomic<size_t> total_{0};
    std::array<Atomic<size_t>, hosts_max> counts_{};
    Atomic<size_t> total_leaving_{0};
    std::array<Atomic<size_t>, hosts_max> leaving_{};
    Atomic<size_t> waiting_{0};  // at least those in the queues, until they are closed
    std::array<FrameQueue, hosts_max> queues_;
};

}  // namespace tarn
