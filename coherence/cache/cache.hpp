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

#include "coherence/cache/frame_queue.hpp"
#include "coherence/cache/last_writes.hpp"
#include "coherence/cache/loss_recorder.hpp"
#include "coherence/cache/loss_view.hpp"
#include "coherence/cache/piece_marker.hpp"
#include "coherence/cache/volume_turns.hpp"
#include "coherence/cache/volume_uses.hpp"
#include "coherence/cache/writable_share.hpp"
#include "coherence/cache/write_check.hpp"
#include "coherence/fabric/fabric.hpp"
#include "coherence/partition/range_map.hpp"
#include "coherence/protocol/coalescing.hpp"
#include "coherence/protocol/flush.hpp"
#include "coherence/protocol/stripe.hpp"
#include "tiers/dram/frame_index.hpp"
#include "tiers/dram/frame_pool.hpp"
#include "tiers/dram/frame_set.hpp"
#include "tiers/dram/replacement.hpp"
#include "tiers/nvme/store.hpp"
#include "utils/broadcast.hpp"
#include "utils/loop.hpp"
#include "utils/per_loop.hpp"

namespace tarn {

class Flusher;
class HomeReadBatch;
class PageAccess;
class PageProvider;
struct PageUpdate;

struct CacheConfiguration {
    HostId self = 0;
    std::vector<HostId> hosts;  // all of the cluster, in the order of the configuration
    size_t frame_count = 0;
    std::vector<Loop*> shards;
    protocol::WriteLease lease;
};

class Cache final : public Fabric::Receiver {
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

    // Hot path, within one page; view: of the session that asks. False: nothing was done, take the cold path.
    bool try_read(PageId page, size_t offset, std::span<std::byte> into, LossView& view);
    bool try_write(PageId page, size_t offset, std::span<const std::byte> from, LossView& view,
                   WriteCheck* check = nullptr);
    bool try_update(PageId page, PageUpdate& update, LossView& view);
    // Over several pages: all of them are latched before the first byte changes.
    bool try_write_run(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from, LossView& view,
                       WriteCheck* check = nullptr);
    // The same from within the update of another page, whose latch is held: what has to be done once it is not, by
    // report_quiet(), is added to quiet.
    struct QuietFrame {
        FrameId frame;
        PageId page;
    };
    bool try_write_within(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from, LossView& view,
                          std::vector<QuietFrame>& quiet);
    void report_quiet(std::span<const QuietFrame> quiet);
    // These are about to be asked for, or heard of: brings what the tables know of them into the CPU's caches.
    void prefetch(std::span<const PageId> pages);
    // Whether a read, or a write, would find the page just now.
    bool holds(PageId page);
    bool is_writable(PageId page) const;
    // Of a page that an access holds: whether the session may see its bytes. Without a wait, whoever else is inside it.
    bool may_use(PageId page, LossView& view) const;
    // The frame's bytes stay as they are until unpin().
    FrameId try_pin(PageId page, LossView& view);
    void unpin(FrameId id);
    // Before the bytes of a page are used: from when on losses of it count for the session.
    void count_losses(PageId page, LossView& view) const {
        if (view.unheard() != 0) [[unlikely]]
            count_losses_slowly(page, view);
    }
    const std::byte* bytes(FrameId id) { return pool_->bytes(id); }

    // Cold path, for PageAccess: asks for the page; woken by PageAccess::run.
    void acquire(PageId page, protocol::Want want, PageAccess& access, FrameId spare);
    // The access waits no more. Too late: it was woken, or failed. Never: it writes a whole page; such a write, once
    // asked for, is done when it can be.
    enum class Cancelled : uint8_t { yes, too_late, never };
    Cancelled cancel(PageAccess& access);
    // The woken access has the frame to itself (writing) or with readers, for as long as fn runs.
    template <class Function>
    void with_frame(FrameId id, bool writing, Function&& fn);
    void served(PageId page);
    // Under the exclusive latch. Finished by the next process, should this one be killed half-way.
    void write_frame(Frame& frame, size_t offset, std::span<const std::byte> from);
    void zero_frame(Frame& frame, size_t offset, size_t size);
    void update_frame(Frame& frame, PageUpdate& update);

    // Whether this home can store nothing any more: then what is dirty stays where it is, and no new page of it becomes
    // writable, so that memory is left for reads. Ends with the process there. The catalog's few pages stay writable:
    // who opens a volume needs them.
    bool store_failed_at(HostId home) const {
        return home == self_ ? store_.failed()
                             : protocol::contains(failed_stores_.load(std::memory_order_relaxed), home);
    }
    bool refuses_writes_of(PageId page) const {
        return page.volume() != catalog_volume && store_failed_at(home_of(page));
    }
    // Once this host's store has failed: flushes that wait for other hosts' bytes fail.
    void heed_store_failure();
    bool any_store_failed() const { return store_.failed() || failed_stores_.load(std::memory_order_relaxed) != 0; }

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
    bool is_forgotten(HostId host) const {
        return protocol::contains(forgotten_.load(std::memory_order_seq_cst), host);
    }
    // The last process of a forgotten host that is taken for dead.
    protocol::Incarnation forgotten_incarnation(HostId host) const {
        const uint32_t remembered = store_.forgotten(host);
        return remembered == 0 ? 0 : remembered - 1;
    }

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

    const RangeMap& ranges() const { return ranges_; }
    HostId self() const { return self_; }
    protocol::HostSet hosts() const { return host_set_; }
    HostId home_of(PageId page) const { return ranges_.find(page).home; }
    FramePool& pool() { return *pool_; }
    Store& store() { return store_; }
    Replacement& replacement() { return replacement_; }
    Flusher& flusher() { return *flusher_; }
    PageProvider& provider() { return *provider_; }
    WritableShare& writable_share() { return writable_share_; }
    FrameSet& dirty_frames() { return dirty_frames_; }
    // Frames whose bytes are not in the store, or not at home.
    size_t dirty_frame_count();
    static bool is_dirty(const Frame& frame);
    Fabric* fabric() { return fabric_; }
    // The process that this host last met there; its own for itself.
    protocol::Process process_of(HostId host);
    protocol::Incarnation incarnation_of(HostId host) { return process_of(host).incarnation; }
    protocol::Incarnation own_incarnation() const { return process_.incarnation; }
    // What was taken over from the process before.
    size_t adopted_page_count() const { return adopted_page_count_; }
    bool recovering() const { return recovering_.load(std::memory_order_relaxed); }
    // This home serves, and is about to find out of no loss: none is being recorded, and no host is away whose memory
    // may be gone.
    bool is_settled() const;
    // A host came or went in the last seconds, or this one began.
    bool has_just_changed() const;
    // Until this home knows who holds what. Errors: unavailable (it stops).
    Task<Result<>> recovered();
    // Announced when a link comes up or breaks, when this host has recovered, and at abandon().
    Broadcast& hosts_changed() { return hosts_changed_; }

    // Tells the next unassigned volume id: a peer that names a later one is not correct. Before any link can come up.
    using AskNextVolumeId = Task<Result<VolumeId>> (*)(void* context);
    void set_next_volume_id(AskNextVolumeId ask, void* context) {
        ask_next_volume_id_ = ask;
        next_volume_id_context_ = context;
    }

    // Fills in what every message of this host says.
    void stamp(protocol::Message& message) const;

    LossRecorder& losses() { return losses_; }
    // Of tasks that cut a volume and zero what is past its new end; of those that hold pages while they wait for
    // others.
    VolumeTurns& cutting_turns() { return cutting_turns_; }
    VolumeTurns& holding_turns() { return holding_turns_; }
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
    // While losses are not on record yet, the next process must assume the worst.
    void begin_doubt();
    void end_doubt();

    // Asks the page's stripe to write the page's dirty bytes home; answered by Flusher::on_written.
    void write_back(PageId page, protocol::WaiterToken waiter);

    struct HomeRead {
        HostId to = no_host;
        FrameId frame = no_frame;  // to this host itself: a frame of their own, if there was one
        uint32_t link = 0;         // to another: the link it was asked over, and no later one
        protocol::Message message;
    };
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
    static constexpr uint32_t view_epoch = 1;  // static peers: the view never changes

    struct alignas(64) StripeSlot {
        StripeSlot(HostId self, uint32_t epoch, const RangeMap& ranges, std::atomic<uint32_t>& last_request)
            : stripe(self, epoch, ranges), last_request_id(last_request) {}
        SpinLock latch;
        protocol::HostSet linked = 0;                   // hosts whose peer_up this stripe has had on the present link
        std::array<uint32_t, hosts_max> link_counts{};  // of each host's links so far
        protocol::Stripe stripe;
        std::atomic<uint32_t>& last_request_id;  // in the arena
        protocol::Actions actions;
        std::vector<protocol::Event> events;   // of the step under way
        protocol::PendingGrant pending_grant;  // of the step under way
        PageAccess* waiting = nullptr;         // list of the accesses that wait here
    };
    // A page that another host waits for, and that this one may go on writing for a while.
    struct Recalled {
        PageId page;
        FrameId frame = no_frame;
        uint32_t version = 0;  // of the frame's word, as it was last seen
    };
    // What a step leaves to do after the latch is released.
    struct Deferred {
        std::vector<HomeRead> home_reads;
        protocol::FlushActions flush_actions;
        std::vector<PageId> losses;
        std::vector<PageId> marks;
        HostId lost_host = no_host;      // whose memory they were lost with
        std::vector<PageAccess*> woken;  // to go on at once
        std::vector<Recalled> recalled;
        bool of_message = false;  // nothing else is under way on this thread
        bool frames_freed = false;
        uint64_t discard_steps = 0;  // about pages of the volume that is discarded
        StaticText refused = "";     // why the link that brought the message ends
    };

    Cache(const CacheConfiguration& configuration, Store& store, std::unique_ptr<Arena> arena);

    StripeSlot& slot_of(PageId page) { return *stripes_[cached_.stripe_of(page)]; }
    bool may_use(const Frame& frame, PageId page, LossView& view) const;
    void count_losses_slowly(PageId page, LossView& view) const;
    void step(const protocol::Event& event);
    // Under the latch of slot: the event and all that follows from it here. False: nothing is stepped any more.
    bool step_latched(StripeSlot& slot, const protocol::Event& event, Deferred& deferred);
    void finish(Deferred& deferred);
    void report_quiet(Frame& frame, PageId page);
    template <class Report>
    bool write_latched(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from, LossView& view,
                       WriteCheck* check, Report&& report);
    bool may_change(const Frame& frame, PageId page, LossView& view) const;
    static protocol::Event quiesced(Frame& frame, PageId page);
    template <class Function>
    bool try_change(PageId page, LossView& view, Function&& change);
    static void leave_waiting(PageAccess& access);
    size_t reserve_count() const;
    size_t lending_reserve_count() const;
    void mark_written(Frame& frame, size_t offset, size_t size);

    // cache_adoption.cpp
    class Staged;
    void record(StripeSlot& slot, const protocol::Event& event);
    void record_holding(PageId page, const protocol::Holding& holding);
    void record_frame(FrameId id, const FrameRecord::State& state);
    void remember_met(HostId host, protocol::Process process);
    void adopt();
    void finish_staged_writes();
    void adopt_home_bytes();
    void adopt_holdings();
    void adopt_holding(PageId page, std::span<const FrameId> frames);
    void say_what_home_has(protocol::Event& event);
    Task<> recover_in_doubt();
    std::vector<PageId> held_pages();
    std::vector<PageId> pages_to_mark();
    bool is_in_doubt() const;
    Task<Result<>> record_doubts();

    // cache_actions.cpp
    void perform(StripeSlot& slot, const protocol::Action& action, Deferred& deferred);
    void send(StripeSlot& slot, HostId to, protocol::Message message, std::span<const std::byte> payload);
    void send_pending_grant(StripeSlot& slot);
    // The payload is the frame's bytes as they are now, or a flag when they are known to be zeros.
    void send_frame(StripeSlot& slot, HostId to, protocol::Message message, FrameId frame);
    void quiesce(StripeSlot& slot, const protocol::Action& action, Deferred& deferred);
    bool is_being_written(FrameId frame) const;
    Task<> yield_lease(Recalled recalled);
    void set_access(const protocol::Action& action);
    void count_writable(Frame& frame, bool writable);
    void mark_dirty(Frame& frame, DirtyMask mask);
    void forget_dirty_if_clean(Frame& frame);
    void release(FrameId id, FrameUse use, Deferred& deferred);

    // home_bytes.cpp
    void apply_copy(const protocol::Action& action, Deferred& deferred);
    void keep_copy(const protocol::Action& action, Deferred& deferred);
    bool wants_copy(const protocol::Message& message);
    void send_home_bytes(StripeSlot& slot, const protocol::Action& action, Deferred& deferred);
    void forget_home_bytes(Frame& frame, Deferred& deferred);

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
    void recover_if_all_are_accounted_for();
    bool all_are_accounted_for() const;
    void recover();
    void check_volume(HostId peer, VolumeId volume);
    Task<> verify_volume(HostId peer, VolumeId volume);
    Task<> remember_again(HostId host);
    Task<> remember_standing(HostId host, StoreStanding standing);
    Task<> end_as_older(StoreStanding remembered);
    void step_all(const protocol::Event& event, HostId lost_host);
    Task<Result<std::string>> tell_verifier();
    Task<Result<std::string>> tell_settled_verifier();
    Task<Result<std::string>> tell_stored_runs(std::string request);
    Task<Result<std::string>> tell_zeroing_over(std::string request);

    Task<> read_home_run(std::vector<HomeRead> reads);
    Task<> read_home_page(HomeRead read);
    void deliver_home_bytes(const HomeRead& read, const std::byte* bytes, bool failed);

    HostId self_;
    protocol::Process process_;
    std::vector<HostId> hosts_;
    protocol::HostSet host_set_ = 0;
    std::vector<Loop*> shards_;
    PerLoop<HomeReadBatch*> home_read_batches_;
    Store& store_;
    Fabric* fabric_ = nullptr;
    RangeMap ranges_;
    std::unique_ptr<FramePool> pool_;
    FrameIndex cached_;  // what this host holds
    FrameIndex homes_;   // home's bytes of pages homed here
    FrameSet dirty_frames_;
    FrameSet home_dirty_frames_;
    Replacement replacement_;
    protocol::WriteLease lease_;
    LastWrites last_writes_;
    std::vector<std::unique_ptr<StripeSlot>> stripes_;
    std::unique_ptr<Flusher> flusher_;
    std::unique_ptr<PageProvider> provider_;

    LossRecorder losses_{*this};
    PieceMarker marker_{*this};

    mutable SpinLock links_lock_;
    protocol::HostSet met_now_ = 0;                   // linked, and every stripe has heard of it
    std::array<protocol::Process, hosts_max> met_{};  // the last process of each host
    unsigned doubts_ = 0;
    uint64_t reports_ = 0;           // counts what changes who holds what, while this home recovers
    uint64_t recorded_reports_ = 0;  // and of what these were when doubts were recorded
    bool recording_doubts_ = false;
    bool doubts_are_recorded_ = false;
    protocol::LossRanges losses_before_;  // on record when this home began to serve
    size_t adopted_page_count_ = 0;
    protocol::HostSet greeted_ = 0;
    std::atomic<protocol::HostSet> forgotten_{0};
    std::atomic<protocol::HostSet> returning_{0};  // forgotten, and back as another process: this is being remembered
    std::atomic<protocol::HostSet> failed_stores_{0};  // of other hosts
    std::atomic<bool> store_failure_told_{false};
    std::atomic<bool> recovering_{true};
    Broadcast hosts_changed_;
    VolumeTurns cutting_turns_;
    VolumeTurns holding_turns_;
    VolumeUses uses_;
    VolumeTurns discarding_turns_;
    std::atomic<VolumeId> discarding_{0};     // the volume whose pages go; 0: none
    std::atomic<uint64_t> discard_steps_{0};  // of its pages
    Broadcast discarded_;                     // one more
    std::atomic<uint64_t> changed_at_ns_{0};
    Broadcast stored_;  // of some frame `storing` has ended

    FrameQueue waiting_for_frames_;
    WritableShare writable_share_;
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
