// Cache: this host's part of the coherent store of pages: frames, latches and protocol put together.
//
// The hot path runs on any thread, by the frame's word alone: find, latch, copy, let go. Everything else steps the
// stripe of the page under its latch (step()), performs what the protocol answers, and wakes the accesses that may go
// on, each on the shard that asked.
//
//   cache.cpp          hot path, stepping, the page's way in and out of the tables
//   cache_actions.cpp  what each action of the protocol means here
//   home_bytes.cpp     home's bytes: from the frames, from the store, into the store
//   cache_links.cpp    links to other hosts, and what comes over them
//
// Latches are taken in this order: stripe, flush books, frame pool. None is held across a wait.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "coherence/fabric/fabric.hpp"
#include "coherence/partition/range_map.hpp"
#include "coherence/protocol/flush.hpp"
#include "coherence/protocol/stripe.hpp"
#include "tiers/dram/frame_pool.hpp"
#include "tiers/dram/frame_set.hpp"
#include "tiers/dram/page_table.hpp"
#include "tiers/dram/replacement.hpp"
#include "tiers/nvme/store.hpp"
#include "utils/broadcast.hpp"
#include "utils/loop.hpp"
#include "utils/spinlock.hpp"

namespace tarn {

class Flusher;
class FrameWaiter;
class PageAccess;
class PageProvider;
struct PageUpdate;

struct CacheConfiguration {
    HostId self = 0;
    std::vector<HostId> hosts;  // all of the cluster, in the order of the configuration
    size_t frame_count = 0;
    std::vector<Loop*> shards;
};

class Cache final : public Fabric::Receiver {
  public:
    // The store must outlive the cache. fabric: nullptr for a host alone.
    static Result<std::unique_ptr<Cache>> create(const CacheConfiguration& configuration, Store& store);
    ~Cache() override;
    // Before any link can come up.
    void set_fabric(Fabric& fabric) { fabric_ = &fabric; }

    // Hot path. `offset` and the span lie within one page. False: nothing was done, take the cold path.
    bool try_read(PageId page, size_t offset, std::span<std::byte> into);
    bool try_write(PageId page, size_t offset, std::span<const std::byte> from);
    bool try_update(PageId page, PageUpdate& update);
    // Over several pages: all of them are latched before the first byte changes.
    bool try_write_run(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from);
    // Whether a read would find the page just now.
    bool holds(PageId page);
    // The frame's bytes stay as they are until unpin().
    FrameId try_pin(PageId page);
    void unpin(FrameId id);
    const std::byte* bytes(FrameId id) { return pool_->bytes(id); }

    // Cold path, for PageAccess: asks for the page; woken by PageAccess::post_woken or post_failed.
    void acquire(PageId page, protocol::Want want, PageAccess& access, FrameId spare);
    void cancel(PageId page, PageAccess& access);
    // The woken access has the frame to itself (writing) or with readers, for as long as fn runs.
    template <class Function>
    void with_frame(FrameId id, bool writing, Function&& fn);
    void served(PageId page);
    // Under the exclusive latch: these bytes changed.
    void mark_written(Frame& frame, size_t offset, size_t size);

    // Frames. take_frame: no_frame when only the reserve for bytes of others is left.
    FrameId take_frame();
    void give_frame(FrameId id);
    // waiter is posted with a frame once there is one, in the order of the calls.
    void wait_for_frame(FrameWaiter& waiter);

    // Replacement found this frame cold. True: it is on its way out (or out).
    bool try_evict(FrameId id, std::vector<FrameId>& to_store);
    // Writes home's bytes in these frames into the store, and the frames that are nothing else become free.
    Task<Result<>> store_home_bytes(std::vector<FrameId> ids, bool free_after);
    // All of a volume that the store lacks.
    Task<Result<>> store_volume(VolumeId volume);

    // Numbers of the pages in [first, end) homed here whose newest bytes are not in the store, in any order.
    std::vector<uint64_t> pages_in_memory(VolumeId volume, uint64_t first, uint64_t end);

    // Shutdown: every access that waits, or will, fails with cancelled; nothing is stepped any more.
    void abandon();
    bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

    // Fabric::Receiver
    void on_link_up(HostId host, protocol::Incarnation incarnation) override;
    void on_link_down(HostId host) override;
    Result<> on_message(const protocol::Message& message, std::byte* page) override;
    std::byte* lend_page(HostId from) override;
    void return_page(std::byte* page) override;
    Task<Result<std::string>> on_call(HostId from, std::string request) override;
    void on_greeted(HostId host) override;
    using CallHandler = Task<Result<std::string>> (*)(void* context, HostId from, std::string request);
    void set_call_handler(CallHandler handler, void* context) {
        call_handler_ = handler;
        call_context_ = context;
    }

    const RangeMap& ranges() const { return ranges_; }
    HostId self() const { return self_; }
    HostId home_of(PageId page) const { return ranges_.find(page).home; }
    FramePool& pool() { return *pool_; }
    Store& store() { return store_; }
    Replacement& replacement() { return replacement_; }
    Flusher& flusher() { return *flusher_; }
    PageProvider& provider() { return *provider_; }
    FrameSet& dirty_frames() { return dirty_frames_; }
    // Frames whose bytes are not in the store, or not at home.
    size_t dirty_frame_count();
    Fabric* fabric() { return fabric_; }
    // Of the process that this host last met there; its own for itself; 0: never met.
    protocol::Incarnation incarnation_of(HostId host);
    bool recovering() const { return recovering_.load(std::memory_order_relaxed); }
    // Announced when a link comes up or breaks, when this host has recovered, and at abandon().
    Broadcast& hosts_changed() { return hosts_changed_; }

    // Fills in what every message of this host says.
    void stamp(protocol::Message& message) const;

    // Asks the page's stripe to write the page's dirty bytes home; answered by Flusher::on_written.
    void write_back(PageId page, protocol::WaiterToken waiter);

    struct HomeRead {
        HostId to = no_host;
        FrameId frame = no_frame;  // to this host itself: where the bytes go
        uint32_t link = 0;         // to another: the link it was asked over, and no later one
        protocol::Message message;
    };
    // One message's worth of home's bytes each. Neighbours are read together.
    void read_home_bytes(std::vector<HomeRead> reads);

    struct Counters {
        std::atomic<uint64_t> misses{0};
        std::atomic<uint64_t> store_reads{0};
        std::atomic<uint64_t> store_writes{0};
        std::atomic<uint64_t> messages_sent{0};
        std::atomic<uint64_t> messages_received{0};
    };
    Counters& counters() { return counters_; }

  private:
    static constexpr unsigned stripe_bits = 7;
    static constexpr size_t stripe_count = size_t{1} << stripe_bits;
    static constexpr uint32_t view_epoch = 1;  // static peers: the view never changes

    struct alignas(64) StripeSlot {
        StripeSlot(HostId self, protocol::Incarnation incarnation, const RangeMap& ranges)
            : stripe(self, incarnation, ranges) {}
        SpinLock latch;
        protocol::HostSet linked = 0;                   // hosts whose peer_up this stripe has had on the present link
        std::array<uint32_t, hosts_max> link_counts{};  // of each host's links so far
        protocol::Stripe stripe;
        protocol::Actions actions;
        std::vector<protocol::Event> events;  // of the step under way
        PageAccess* waiting = nullptr;        // list of the accesses that wait here
    };
    // What a step leaves to do after the latch is released.
    struct Deferred {
        std::vector<HomeRead> home_reads;
        protocol::FlushActions flush_actions;
        std::vector<PageId> losses;
        bool frames_freed = false;
        const char* refused = nullptr;  // why the link that brought the message ends
    };

    Cache(const CacheConfiguration& configuration, Store& store, std::unique_ptr<FramePool> pool);

    StripeSlot& slot_of(PageId page) { return *stripes_[cached_.stripe_of(page)]; }
    void step(const protocol::Event& event);
    // Under the latch of slot: the event and all that follows from it here.
    void step_latched(StripeSlot& slot, const protocol::Event& event, Deferred& deferred);
    void finish(Deferred& deferred);
    void report_quiet(Frame& frame, PageId page);
    static protocol::Event quiesced(Frame& frame, PageId page);
    static void leave_waiting(PageAccess& access);
    size_t reserve_count() const;

    // cache_actions.cpp
    void perform(StripeSlot& slot, const protocol::Action& action, Deferred& deferred);
    void send(StripeSlot& slot, HostId to, protocol::Message message, std::span<const std::byte> payload);
    // The payload is the frame's bytes as they are now, or a flag when they are known to be zeros.
    void send_frame(StripeSlot& slot, HostId to, protocol::Message message, FrameId frame);
    void set_access(PageId page, FrameId id, protocol::Ownership ownership);
    void mark_dirty(Frame& frame, DirtyMask mask);
    void forget_dirty_if_clean(Frame& frame);
    void release(FrameId id, FrameUse use, Deferred& deferred);

    // home_bytes.cpp
    void apply_copy(const protocol::Action& action, Deferred& deferred);
    void send_home_bytes(StripeSlot& slot, const protocol::Action& action, Deferred& deferred);
    void snapshot(Frame& frame, std::byte* into);
    void forget_home_bytes(Frame& frame, Deferred& deferred);
    Task<> read_home_run(std::vector<HomeRead> reads);
    void deliver_home_bytes(const HomeRead& read, const std::byte* bytes, bool failed);
    Task<> record_loss(PageId page);

    void frames_freed();

    HostId self_;
    protocol::Incarnation incarnation_;
    std::vector<HostId> hosts_;
    protocol::HostSet host_set_ = 0;
    std::vector<Loop*> shards_;
    Store& store_;
    Fabric* fabric_ = nullptr;
    RangeMap ranges_;
    std::unique_ptr<FramePool> pool_;
    PageTable cached_;  // what this host holds
    PageTable homes_;   // home's bytes of pages homed here
    FrameSet dirty_frames_;
    FrameSet home_dirty_frames_;
    Replacement replacement_;
    std::vector<std::unique_ptr<StripeSlot>> stripes_;
    std::unique_ptr<Flusher> flusher_;
    std::unique_ptr<PageProvider> provider_;

    SpinLock links_lock_;
    std::array<protocol::Incarnation, hosts_max> met_{};  // the last incarnation of each host, 0: never met
    protocol::HostSet greeted_ = 0;
    std::atomic<bool> recovering_{true};
    Broadcast hosts_changed_;
    Broadcast stored_;  // some frame stopped being `storing`

    SpinLock waiters_lock_;
    FrameWaiter* first_waiter_ = nullptr;
    FrameWaiter* last_waiter_ = nullptr;
    std::atomic<size_t> waiter_count_{0};
    std::atomic<protocol::HostSet> starved_links_{0};  // their next message has a page, and no frame was free

    CallHandler call_handler_ = nullptr;
    void* call_context_ = nullptr;
    std::atomic<bool> abandoned_{false};
    Counters counters_;
};

template <class Function>
void Cache::with_frame(FrameId id, bool writing, Function&& fn) {
    Frame& frame = pool_->frame(id);
    std::byte* const bytes = pool_->bytes(id);
    for (;; _mm_pause()) {
        const FrameWord::Value seen = frame.word.load();
        if ((seen & FrameWord::ownership_mask) == FrameWord::none) return fn(frame, bytes);  // blank, and ours alone
        if (writing ? frame.word.try_latch_exclusive(seen) : frame.word.try_pin(seen)) break;
        if (FrameWord::latched(seen)) ::sched_yield();  // somebody is inside, for microseconds
    }
    const PageId page = frame.page_id();
    fn(frame, bytes);
    replacement_.touch(frame);
    const bool quiet = writing ? frame.word.unlatch_exclusive() : frame.word.unpin();
    if (quiet) report_quiet(frame, page);
}

}  // namespace tarn
