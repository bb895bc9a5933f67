// Stripes: the partitions of this host's protocol state, each under a latch of its own, and the steps they take.
//
// A Turn holds the latch of a page's stripe: it looks things up, and takes steps. At its end the latch is released, and
// the remaining work of its steps is done. Operations that wait for a page wait in its stripe.
//
// Latches are taken in this order: stripe, flush books, frame pool. None is held across a wait.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "coherence/executor/executor.hpp"
#include "coherence/membership/membership.hpp"
#include "coherence/protocol/marks.hpp"
#include "tiers/dram/frame_index.hpp"
#include "utils/broadcast.hpp"
#include "utils/loop.hpp"
#include "utils/per_loop.hpp"
#include "utils/result.hpp"
#include "utils/spinlock.hpp"

namespace tarn {

// A local operation that waits for a page: in the protocol a WaiterToken, here a link of the stripe's list.
class StripeWaiter {
  public:
    // Called under the stripe's latch, once it waits there no more: the host stops.
    virtual void post_failed(Errc code) = 0;

  protected:
    ~StripeWaiter() = default;

  private:
    friend class Stripes;
    StripeWaiter* next_ = nullptr;
    StripeWaiter** link_ = nullptr;  // null: it does not wait
};

class Stripes {
  public:
    static constexpr unsigned bits = 7;
    static constexpr size_t count = size_t{1} << bits;
    static_assert(count <= ArenaHeader::stripes_max);

    // Records of each step what the next process needs to know, before anybody is told of the step.
    class Recorder {
      public:
        // Called before any of the actions is performed.
        virtual void record(const protocol::Holder& holder, const protocol::Event& event,
                            const protocol::Actions& actions) = 0;

      protected:
        ~Recorder() = default;
    };

    // header: the arena's, which outlives this. Only its request ids and the last epoch in doubt are used.
    Stripes(const Membership& membership, ArenaHeader& header, size_t frame_count, std::span<Loop* const> shards,
            const Effects& effects, Recorder& recorder);
    // Before the first step.
    void set_marks(const protocol::Marks& marks);
    // The previous process has used request ids up to those in the arena.
    void adopt_request_ids();

    static unsigned index_of(PageId page) { return FrameIndex::stripe_of(page, bits); }

    class Turn;
    // One turn of each stripe after the other.
    template <class Function>
    void for_each(Function&& fn);
    // Takes the latch only: nothing is stepped.
    [[nodiscard]] std::unique_lock<SpinLock> latch(PageId page) { return std::unique_lock(slot_of(page).latch); }

    void step(const protocol::Event& event);
    // lost_host: the host whose memory was lost, if the event says that.
    void step_all(const protocol::Event& event, HostId lost_host = no_host);

    // Asks for the page, by an event that names the waiter, which is then woken, refused or failed. prepare() completes
    // the event, under the latch.
    template <class Prepare>
    void wait(const protocol::Event& event, StripeWaiter& waiter, Prepare&& prepare);
    // may_cancel is called under the latch, if the waiter still waits.
    enum class Cancelled : uint8_t { yes, too_late, never };
    Cancelled cancel(PageId page, protocol::WaiterToken token, StripeWaiter& waiter, bool may_cancel);
    // Under the latch: it waits no more.
    static void leave(StripeWaiter& waiter);

    // Brings the tables' entries of pages that are about to be stepped into the CPU's caches.
    void prefetch(std::span<const PageId> pages, std::span<FrameIndex* const> indexes);

    // While it lives, it gathers the reads of home's bytes that this shard's steps ask for; at its end they go to the
    // store together, neighbours in one operation. On a thread that is no shard nothing is gathered.
    class ReadBatch;

    // Shutdown: every present and later waiter fails with cancelled; nothing is stepped any more.
    void abandon();
    bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

    // Counts the steps about pages of one volume (0: none), so that a task waiting for them knows when to look again.
    void watch(VolumeId volume) { watched_.store(volume, std::memory_order_relaxed); }
    uint64_t watched_steps() const { return watched_steps_.load(std::memory_order_relaxed); }
    Broadcast& watched() { return watched_stepped_; }

  private:
    struct alignas(64) Slot {
        Slot(const Membership& membership, const ArenaHeader& header, std::atomic<uint32_t>& last_request)
            : stripe(membership.self(), membership.process().epoch,
                     {.last_in_doubt = header.last_in_doubt, .last_loss = header.last_loss}, membership.ranges()),
              last_request_id(last_request) {}
        SpinLock latch;
        StripeLinks links;
        protocol::Stripe stripe;
        std::atomic<uint32_t>& last_request_id;  // in the arena
        StepScratch scratch;
        StripeWaiter* waiting = nullptr;  // list of those that wait here
    };
    class Observer;

    Slot& slot_of(PageId page) { return *slots_[index_of(page)]; }
    static void wait(Turn& turn, const protocol::Event& event, StripeWaiter& waiter);
    void finish(StepResult& result, uint64_t watched_steps);
    void count_watched(uint64_t steps);

    const Membership& membership_;
    Executor executor_;
    HomeStore& home_store_;
    Recorder& recorder_;
    std::vector<std::unique_ptr<Slot>> slots_;
    PerLoop<ReadBatch*> read_batches_;
    std::atomic<bool> abandoned_{false};
    std::atomic<VolumeId> watched_{0};
    std::atomic<uint64_t> watched_steps_{0};
    Broadcast watched_stepped_;
};

class Stripes::Turn {
  public:
    Turn(Stripes& stripes, PageId page) : Turn(stripes, stripes.slot_of(page)) {}
    Turn(Stripes& stripes, unsigned index) : Turn(stripes, *stripes.slots_[index]) {}
    Turn(const Turn&) = delete;
    ~Turn() { end(); }

    // Performs the event and all that follows from it on this host. False: nothing is stepped any more.
    bool step(const protocol::Event& event);
    const protocol::Stripe& stripe() const { return slot_.stripe; }
    const protocol::Home& home() const { return slot_.stripe.home(); }
    const protocol::Holder& holder() const { return slot_.stripe.holder(); }
    StripeLinks& links() { return slot_.links; }
    // The remaining work; valid after the end of the turn as well.
    StepResult& result() { return result_; }
    // Of this turn, see watch().
    uint64_t watched_steps() const { return watched_steps_; }
    void end();

  private:
    friend class Stripes;
    Turn(Stripes& stripes, Slot& slot) : stripes_(stripes), slot_(slot), latch_(slot.latch) {}

    Stripes& stripes_;
    Slot& slot_;
    std::unique_lock<SpinLock> latch_;
    StepResult result_;
    uint64_t watched_steps_ = 0;
};

template <class Prepare>
void Stripes::wait(const protocol::Event& event, StripeWaiter& waiter, Prepare&& prepare) {
    Turn turn(*this, event.page);
    prepare();
    wait(turn, event, waiter);
}

template <class Function>
void Stripes::for_each(Function&& fn) {
    for (const auto& slot : slots_) {
        Turn turn(*this, *slot);
        fn(turn);
    }
}

class Stripes::ReadBatch {
  public:
    explicit ReadBatch(Stripes& stripes);
    ReadBatch(const ReadBatch&) = delete;
    ~ReadBatch();

  private:
    friend class Stripes;
    HomeStore& home_store_;
    ReadBatch** const current_;  // this shard's innermost one
    ReadBatch* outer_ = nullptr;
    std::vector<HomeRead> reads_;
};

}  // namespace tarn
