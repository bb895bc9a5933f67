// Cache: this host's part of the coherent store of pages: frames, latches and protocol put together.
//
// The hot path runs on any thread, by the frame's word alone: find, latch, copy, let go. Everything else steps the
// stripe of the page under its latch (step()), performs what the protocol answers, and wakes the accesses that may go
// on, each on the shard that asked.
//
//   cache.cpp          hot path, stepping, the page's way in and out of the tables
//   cache_actions.cpp  what each action of the protocol means here
//   home_bytes.cpp     home's bytes: from the frames, from the store
//   home_storing.cpp   into the store
//   volume_end.cpp     what there is of a volume that was deleted
//   cache_links.cpp    links to other hosts, and what comes over them
//   cache_adoption.cpp what the next process needs to know, and what this one takes from the one before
//
// Latches are taken in this order: stripe, flush books, frame pool. None is held across a wait.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "coherence/cache/loss_recorder.hpp"
#include "coherence/cache/piece_marker.hpp"
#include "coherence/cache/volume_turns.hpp"
#include "coherence/cache/volume_uses.hpp"
#include "coherence/executor/executor.hpp"
#include "coherence/fabric/fabric.hpp"
#include "coherence/membership/membership.hpp"
#include "coherence/pages/frame_queue.hpp"
#include "coherence/pages/pages.hpp"
#include "coherence/pages/writable_share.hpp"
#include "coherence/protocol/flush.hpp"
#include "coherence/protocol/stripe.hpp"
#include "tiers/dram/frame_pool.hpp"
#include "tiers/dram/frame_set.hpp"
#include "tiers/nvme/store.hpp"
#include "utils/broadcast.hpp"
#include "utils/loop.hpp"
#include "utils/per_loop.hpp"

namespace tarn {

class Flusher;
class HomeReadBatch;
class PageAccess;
class PageProvider;

struct CacheConfiguration {
    HostId self = 0;
    std::vector<HostId> hosts;  // all of the cluster, in the order of the configuration
    size_t frame_count = 0;
    std::vector<Loop*> shards;
    protocol::WriteLease lease;
};

class Cache final : public Fabric::Receiver, Pages::Listener, Frames, HomeStore, Outbox, Accesses {
  public:
    // The store must outlive the cache. arena: what the process before left, if claim_arena() says that it is good.
    static Result<std::unique_ptr<Cache>> create(const CacheConfiguration& configuration, Store& store,
                                                 std::unique_ptr<Arena> arena = nullptr);
    // Right after the store was opened: whether the arena is of the very process that had it before, and is ours from
    // now on. Errors: refused.
    static Result<> claim_arena(Arena& arena, const Store& store);
    ~Cache() override;
    // Before any link can come up.
    void set_fabric(Fabric& fabric);

    // These are about to be asked for, or heard of: brings what the tables know of them into the CPU's caches.
    void prefetch(std::span<const PageId> pages);
    // Cold path, for PageAccess: asks for the page; woken by PageAccess::run.
    void acquire(PageId page, protocol::Want want, PageAccess& access, FrameId spare);
    // The access waits no more. Too late: it was woken, or failed. Never: it writes a whole page; such a write, once
    // asked for, is done when it can be.
    enum class Cancelled : uint8_t { yes, too_late, never };
    Cancelled cancel(PageAccess& access);
    void served(PageId page);

    // Whether this home can store nothing any more: then what is dirty stays where it is, and no new page of it becomes
    // writable, so that memory is left for reads. Ends with the process there. The catalog's few pages stay writable:
    // who opens a volume needs them.
    bool store_failed_at(HostId home) const {
        return home == self() ? store_.failed() : membership_.store_failed_at(home);
    }
    bool refuses_writes_of(PageId page) const {
        return page.volume() != catalog_volume && store_failed_at(home_of(page));
    }
    // Once this host's store has failed: flushes that wait for other hosts' bytes fail.
    void heed_store_failure();
    bool any_store_failed() const { return store_.failed() || membership_.any_store_failed(); }

    // Frames. take_frame: no_frame when only the reserve for bytes of others is left.
    FrameId take_frame();
    void give_frame(FrameId id);
    // waiter is posted with a frame once there is one, in the order of the calls.
    void wait_for_frame(FrameWaiter& waiter);
    // False: it was posted.
    bool cancel_frame(FrameWaiter& waiter) { return waiting_for_frames_.cancel(waiter); }
    // Who waits for frames gets those that are free, or may be used now.
    void frames_freed();
    bool anyone_waits_for_frames() const { return !waiting_for_frames_.empty(); }

    // Replacement found this frame cold. True: it is on its way out (or out).
    bool try_evict(FrameId id, std::vector<FrameId>& to_store);
    // The same for a clean page of another home, without waiting for that home's answer, or for the home itself. Only
    // if any: those that tell names and sizes, without which nobody could use the frame.
    bool drop_clean(FrameId id, bool any = false);
    // Makes home's bytes in these frames durable, and the frames that are nothing else become free.
    Task<Result<>> evict_home_bytes(std::vector<FrameId> ids);
    // Makes durable what the store lacks of these pages, homed here; of all of a volume.
    Task<Result<>> store_pages(std::vector<PageId> pages);
    Task<Result<>> store_volume(VolumeId volume);
    // After abandon(): whatever only this home's memory has, what was written here since the last flush included.
    // Errors: io.
    Task<Result<>> store_rest();
    // Volumes with pages here that are not in the store, or not at home; also such as have no name any more.
    std::vector<VolumeId> dirty_volumes();
    // As store_pages(), and after a power cut all of it is there or none; no more pages than the store takes at once.
    Task<Result<>> store_group(std::vector<PageId> pages);

    // Numbers of the pages in [first, end) homed here whose newest bytes are not in the store, in any order. Ask it
    // before the store: a page may get there meanwhile, and is then nowhere for who asks the other way round.
    std::vector<uint64_t> pages_in_memory(VolumeId volume, uint64_t first, uint64_t end);
    // Pages of a volume homed here that some host holds or waits for.
    size_t claim_count(VolumeId volume);

    // Shutdown: every access that waits, or will, fails with cancelled; nothing is stepped any more.
    void abandon();
    bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

    // An operator vouches that this host, up to this incarnation, is dead: what only it had is lost, it is waited for
    // no more, and it is welcome again only as another process. Remembered durably. On a shard. Errors: busy (it is
    // linked), io.
    Task<Result<>> forget_host(HostId host, protocol::Incarnation incarnation);

    // Fabric::Receiver
    LinkDecision decide_on_link(HostId host, protocol::Incarnation incarnation) override;
    StoreStanding own_standing() override { return store_.standing(); }
    StoreStanding remembered_of(HostId host) override { return store_.heard(host); }
    Result<> accepts_memory(HostId of, const StoreStanding& of_us) override;
    void on_standing(HostId host, const StoreStanding& standing) override;
    // Called once another host remembers a newer state of this host's store: it must end.
    using OlderHandler = void (*)(void* context);
    void set_older_handler(OlderHandler handler, void* context) {
        older_handler_ = handler;
        older_context_ = context;
    }
    void on_link_up(HostId host, protocol::Process process) override;
    void on_link_down(HostId host) override;
    void on_batch(std::span<const PageId> pages, Batch& batch) override;
    Result<> on_message(const protocol::Message& message, std::byte* page) override;
    std::byte* lend_page(HostId from) override;
    void return_page(std::byte* page) override;
    void on_greeted(HostId host) override;

    Membership& membership() { return membership_; }
    const Membership& membership() const { return membership_; }
    HostId self() const { return membership_.self(); }
    HostId home_of(PageId page) const { return membership_.home_of(page); }
    FramePool& pool() { return *pool_; }
    Store& store() { return store_; }
    Pages& pages() { return pages_; }
    Flusher& flusher() { return *flusher_; }
    PageProvider& provider() { return *provider_; }
    WritableShare& writable_share() { return writable_share_; }
    // Frames whose bytes are not in the store, or not at home.
    size_t dirty_frame_count();
    Fabric* fabric() { return fabric_; }
    // What was taken over from the process before.
    size_t adopted_page_count() const { return adopted_page_count_; }
    // Until this home knows who holds what. Errors: unavailable (it stops).
    Task<Result<>> recovered();

    // Tells the next unassigned volume id: a peer that names a later one is not correct. Before any link can come up.
    using AskNextVolumeId = Task<Result<VolumeId>> (*)(void* context);
    void set_next_volume_id(AskNextVolumeId ask, void* context) {
        ask_next_volume_id_ = ask;
        next_volume_id_context_ = context;
    }

    // Fills in what every message of this host says.
    void stamp(protocol::Message& message) const;

    LossRecorder& losses() { return losses_; }
    VolumeUses& uses() { return uses_; }

    // Of a volume that nobody will use again, on any host. First each host lets go of its pages, dirty ones as well,
    // until their homes have heard of it; waits for homes that are away. Errors: cancelled (it stops).
    Task<Result<>> discard_volume(VolumeId volume);
    // Then each host forgets what it has as their home, in memory and in the store. Errors: those of the store.
    Task<Result<>> erase_volume(VolumeId volume);
    // The loss of this page is on record: it may be served again.
    void loss_recorded(PageId page, uint32_t generation);
    PieceMarker& marker() { return marker_; }
    // The page was to be marked.
    void marked(PageId page, bool store_failed);
    // Of the piece that begins with this page, homed here. gives_up: what only this host may write, and has not
    // changed, it may write no more without asking.
    PieceRest rest_of(PageId piece, bool gives_up);

    // Asks the page's stripe to write the page's dirty bytes home; answered by Flusher::on_written.
    void write_back(PageId page, protocol::WaiterToken waiter);

    // One message's worth of home's bytes each. Neighbours are read together.
    void read_home_bytes(std::vector<HomeRead> reads);
    PerLoop<HomeReadBatch*>& home_read_batches() { return home_read_batches_; }

    struct Counters {
        std::atomic<uint64_t> misses{0};
        std::atomic<uint64_t> store_reads{0};
        std::atomic<uint64_t> store_writes{0};
        std::atomic<uint64_t> last_copies_kept{0};
        std::atomic<uint64_t> turns_leased{0};  // of a loop, that local writes went on for while another host waited
    };
    Counters& counters() { return counters_; }

  private:
    static constexpr unsigned stripe_bits = 7;
    static constexpr size_t stripe_count = size_t{1} << stripe_bits;
    static_assert(stripe_count <= ArenaHeader::stripes_max);

    struct alignas(64) StripeSlot {
        StripeSlot(const Membership& membership, std::atomic<uint32_t>& last_request)
            : stripe(membership.self(), membership.process().epoch, membership.ranges()),
              last_request_id(last_request) {}
        SpinLock latch;
        StripeLinks links;
        protocol::Stripe stripe;
        std::atomic<uint32_t>& last_request_id;  // in the arena
        StepScratch scratch;
        PageAccess* waiting = nullptr;  // list of the accesses that wait here
    };
    // A page that another host waits for, and that this one may go on writing for a while.
    struct Recalled {
        PageId page;
        FrameId frame = no_frame;
        uint32_t version = 0;  // of the frame's word, as it was last seen
    };
    // What steps leave to do after the latch is released.
    struct Deferred : StepResult {
        uint64_t discard_steps = 0;  // about pages of the volume that is discarded
    };
    class Recorder;

    Cache(const CacheConfiguration& configuration, Store& store, std::unique_ptr<Arena> arena);

    StripeSlot& slot_of(PageId page) { return *stripes_[pages_.index().stripe_of(page)]; }
    void step(const protocol::Event& event);
    // Under the latch of slot: the event and all that follows from it here. False: nothing is stepped any more.
    bool step_latched(StripeSlot& slot, const protocol::Event& event, Deferred& deferred);
    void finish(Deferred& deferred);
    void on_quiet(Frame& frame, PageId page) override;
    void on_first_use(LossView& view, HostId home) override;
    static protocol::Event quiesced(Frame& frame, PageId page);
    static void leave_waiting(PageAccess& access);
    size_t reserve_count() const;
    size_t lending_reserve_count() const;

    // cache_adoption.cpp
    void record(StripeSlot& slot, const protocol::Event& event);
    void record_holding(PageId page, const protocol::Holding& holding);
    void record_frame(FrameId id, const FrameRecord::State& state);
    void adopt();
    void finish_staged_writes();
    void adopt_home_bytes();
    void adopt_holdings();
    void adopt_holding(PageId page, std::span<const FrameId> frames);
    void say_what_home_has(protocol::Event& event);
    Task<> record_and_recover();
    std::vector<PageId> held_pages();
    std::vector<PageId> pages_to_mark();
    Task<Result<>> record_possible_losses();

    // cache_actions.cpp: Frames, Outbox and Accesses
    Quiet quiesce(PageId page, FrameId frame, bool recalled) override;
    DirtyMask unwritten_of(FrameId frame) override;
    void set_access(PageId page, FrameId frame, protocol::Ownership ownership, uint32_t lost) override;
    void begin_writing(FrameId frame) override;
    void clear_writing(FrameId frame) override;
    void clear_dirty(FrameId frame) override;
    void mark_dirty(FrameId frame) override;
    bool release(FrameId frame) override { return release(frame, use_holder); }
    uint32_t age_of(FrameId frame) override;
    void keep_lease(PageId page, FrameId frame) override;
    void freed() override { frames_freed(); }
    void send(HostId to, const protocol::Message& message, FrameId frame) override;
    bool wake(const protocol::Action& action, bool may_resume) override;
    void refuse(const protocol::Action& action) override;
    void resume(protocol::WaiterToken waiter) override;
    Task<> yield_lease(Recalled recalled);
    void count_writable(Frame& frame, bool writable);
    bool release(FrameId id, FrameUse use);

    // home_bytes.cpp
    bool apply_copy(const protocol::Action& action) override;
    bool keep_copy(const protocol::Action& action) override;
    Found find(PageId page) override;
    bool share(FrameId found) override;
    void copy(Found found, FrameId into) override;
    FrameId take_free_frame() override { return pool_->try_take(use_holder, reserve_count()); }
    void read(std::vector<HomeRead> reads) override;
    void record_losses(std::vector<PageId> pages, HostId lost_host) override;
    void mark(std::vector<PageId> pages) override;
    bool wants_copy(const protocol::Message& message);
    // Whether its frame came free.
    bool forget_home_bytes(Frame& frame);

    // home_storing.cpp
    void bring_own_writes_home();
    DirtyMask snapshot(Frame& frame, std::byte* into);
    struct Stored {
        FrameId frame;
        uint32_t version;  // of its bytes, as they were written
    };
    std::vector<FrameId> take_home_dirty(std::span<const PageId>& pages, std::vector<PageId>& others);
    Task<Result<>> write_home_bytes(std::vector<FrameId> ids, Atomicity atomicity, std::vector<Stored>& stored);
    Task<Result<>> settle_stored(std::vector<Stored>& stored, Result<> result, bool free_after);

    // volume_end.cpp
    size_t discard_pages(std::vector<PageId>& pages);
    size_t forget_volume_bytes(VolumeId volume);
    void count_discard_steps(uint64_t count);

    // cache_links.cpp
    void recover_if_all_have_reported();
    void recover();
    void check_volume(HostId peer, VolumeId volume);
    Task<> verify_volume(HostId peer, VolumeId volume);
    Task<> remember_again(HostId host);
    Task<> remember_standing(HostId host, StoreStanding standing);
    Task<> end_as_older(StoreStanding remembered);
    void step_all(const protocol::Event& event, HostId lost_host);
    Task<Result<std::string>> tell_verifier();
    Task<Result<std::string>> tell_settled_verifier();

    Task<> read_home_run(std::vector<HomeRead> reads);
    Task<> read_home_page(HomeRead read);
    void deliver_home_bytes(const HomeRead& read, const std::byte* bytes, bool failed);

    std::vector<Loop*> shards_;
    PerLoop<HomeReadBatch*> home_read_batches_;
    Store& store_;
    Fabric* fabric_ = nullptr;
    std::unique_ptr<FramePool> pool_;
    Membership membership_;
    Pages pages_;       // what this host holds
    FrameIndex homes_;  // home's bytes of pages homed here
    FrameSet home_dirty_frames_;
    protocol::WriteLease lease_;
    std::vector<std::unique_ptr<StripeSlot>> stripes_;
    std::unique_ptr<Flusher> flusher_;
    std::unique_ptr<PageProvider> provider_;

    LossRecorder losses_{*this};
    PieceMarker marker_{*this};

    protocol::LossRanges losses_before_;  // on record when this home began to serve
    size_t adopted_page_count_ = 0;
    std::atomic<bool> store_failure_told_{false};
    VolumeUses uses_;
    VolumeTurns discarding_turns_;
    std::atomic<VolumeId> discarding_{0};     // the volume whose pages go; 0: none
    std::atomic<uint64_t> discard_steps_{0};  // of its pages
    Broadcast discarded_;                     // one more
    Broadcast stored_;                        // of some frame `storing` has ended

    FrameQueue waiting_for_frames_;
    WritableShare writable_share_;
    Executor executor_;
    std::atomic<protocol::HostSet> starved_links_{0};  // their next message has a page, and no frame was free

    AskNextVolumeId ask_next_volume_id_ = nullptr;
    void* next_volume_id_context_ = nullptr;
    std::atomic<VolumeId> next_volume_id_{0};            // above every volume that is known to exist
    std::atomic<protocol::HostSet> under_suspicion_{0};  // of naming a volume that does not
    OlderHandler older_handler_ = nullptr;
    void* older_context_ = nullptr;
    std::atomic<bool> abandoned_{false};
    Counters counters_;
};

}  // namespace tarn
