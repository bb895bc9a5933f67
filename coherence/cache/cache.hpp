// Cache: this host's part of the coherent store of pages: frames, latches and protocol put together.
//
// The hot path runs on any thread, by the frame's word alone: find, latch, copy, let go. Everything else steps the
// stripe of the page under its latch (Stripes), performs what the protocol answers, and wakes the accesses that may go
// on, each on the shard that asked.
//
//   cache.cpp          hot path, the page's way in and out of the tables
//   home_bytes.cpp     home's bytes: from the frames, from the store
//   home_storing.cpp   into the store
//   volume_end.cpp     what there is of a volume that was deleted
//   cache_links.cpp    links to other hosts, and what comes over them
//   cache_adoption.cpp what the next process needs to know, and what this one takes from the one before
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
#include "coherence/executor/stripes.hpp"
#include "coherence/fabric/peers.hpp"
#include "coherence/membership/membership.hpp"
#include "coherence/pages/frame_supply.hpp"
#include "coherence/pages/held_frames.hpp"
#include "coherence/pages/page_provider.hpp"
#include "coherence/pages/pages.hpp"
#include "coherence/pages/writable_share.hpp"
#include "coherence/protocol/flush.hpp"
#include "coherence/protocol/stripe.hpp"
#include "tiers/dram/frame_pool.hpp"
#include "tiers/dram/frame_set.hpp"
#include "tiers/nvme/store.hpp"
#include "utils/broadcast.hpp"
#include "utils/loop.hpp"

namespace tarn {

class Flusher;
class PageAccess;

struct CacheConfiguration {
    HostId self = 0;
    std::vector<HostId> hosts;  // all of the cluster, in the order of the configuration
    size_t frame_count = 0;
    std::vector<Loop*> shards;
    protocol::WriteLease lease;
};

class Cache final : public Fabric::Receiver,
                    public PageProvider::Evictor,
                    Pages::Listener,
                    Stripes::Recorder,
                    HomeStore,
                    Accesses {
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
    Stripes::Cancelled cancel(PageAccess& access);
    void served(PageId page);

    // Once this host's store has failed: flushes that wait for other hosts' bytes fail.
    void heed_store_failure() override;

    bool try_evict(FrameId id, std::vector<FrameId>& to_store) override;
    bool drop_clean(FrameId id, bool any) override;
    Task<Result<>> evict_home_bytes(std::vector<FrameId> ids) override;
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
    bool abandoned() const override { return stripes_.abandoned(); }

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
    std::byte* lend_page(HostId from) override { return supply_.lend(from); }
    void return_page(std::byte* page) override { supply_.give(pool_->id_of(page)); }
    void on_greeted(HostId host) override;

    Membership& membership() { return membership_; }
    const Membership& membership() const { return membership_; }
    HostId self() const { return membership_.self(); }
    HostId home_of(PageId page) const { return membership_.home_of(page); }
    FramePool& pool() { return *pool_; }
    Store& store() { return store_; }
    Pages& pages() { return pages_; }
    Flusher& flusher() { return *flusher_; }
    PageProvider& provider() { return provider_; }
    FrameSupply& supply() { return supply_; }
    Stripes& stripes() { return stripes_; }
    const Peers& peers() const { return peers_; }
    Peers& peers() { return peers_; }
    const HeldFrames& held_frames() const { return held_frames_; }
    WritableShare& writable_share() { return writable_share_; }
    // Frames whose bytes are not in the store, or not at home.
    size_t dirty_frame_count();
    Fabric* fabric() { return peers_.fabric(); }
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

    struct Counters {
        std::atomic<uint64_t> misses{0};
        std::atomic<uint64_t> store_reads{0};
        std::atomic<uint64_t> store_writes{0};
        std::atomic<uint64_t> last_copies_kept{0};
    };
    Counters& counters() { return counters_; }

  private:
    Cache(const CacheConfiguration& configuration, Store& store, std::unique_ptr<Arena> arena);

    void on_quiet(Frame& frame, PageId page) override;
    void on_first_use(LossView& view, HostId home) override;

    // cache_adoption.cpp
    void record(const protocol::Holder& holder, const protocol::Event& event) override;
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

    // Accesses
    bool wake(const protocol::Action& action, bool may_resume) override;
    void refuse(const protocol::Action& action) override;
    void resume(protocol::WaiterToken waiter) override;

    // home_bytes.cpp
    bool apply_copy(const protocol::Action& action) override;
    bool keep_copy(const protocol::Action& action) override;
    Found find(PageId page) override;
    bool share(FrameId found) override;
    void copy(Found found, FrameId into) override;
    FrameId take_free_frame() override { return supply_.take_at_once(); }
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
    uint64_t discard_pages(std::vector<PageId>& pages);
    size_t forget_volume_bytes(VolumeId volume);

    // cache_links.cpp
    void recover_if_all_have_reported();
    void recover();
    void check_volume(HostId peer, VolumeId volume);
    Task<> verify_volume(HostId peer, VolumeId volume);
    Task<> remember_again(HostId host);
    Task<> remember_standing(HostId host, StoreStanding standing);
    Task<> end_as_older(StoreStanding remembered);
    Task<Result<std::string>> tell_verifier();
    Task<Result<std::string>> tell_settled_verifier();

    Task<> read_home_run(std::vector<HomeRead> reads);
    Task<> read_home_page(HomeRead read);
    void deliver_home_bytes(const HomeRead& read, const std::byte* bytes, bool failed);

    Store& store_;
    std::unique_ptr<FramePool> pool_;
    Membership membership_;
    Peers peers_;
    Pages pages_;       // what this host holds
    FrameIndex homes_;  // home's bytes of pages homed here
    FrameSet home_dirty_frames_;
    WritableShare writable_share_;
    PageProvider provider_;
    FrameSupply supply_;
    HeldFrames held_frames_;
    std::unique_ptr<Flusher> flusher_;
    Stripes stripes_;

    LossRecorder losses_{*this};
    PieceMarker marker_{*this};

    protocol::LossRanges losses_before_;  // on record when this home began to serve
    size_t adopted_page_count_ = 0;
    std::atomic<bool> store_failure_told_{false};
    VolumeUses uses_;
    VolumeTurns discarding_turns_;
    Broadcast stored_;  // of some frame `storing` has ended

    AskNextVolumeId ask_next_volume_id_ = nullptr;
    void* next_volume_id_context_ = nullptr;
    std::atomic<VolumeId> next_volume_id_{0};            // above every volume that is known to exist
    std::atomic<protocol::HostSet> under_suspicion_{0};  // of naming a volume that does not
    OlderHandler older_handler_ = nullptr;
    void* older_context_ = nullptr;
    Counters counters_;
};

}  // namespace tarn
