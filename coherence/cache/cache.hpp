// Cache: this host's part of the coherent store of pages. Constructs the parts and joins them.
//
// The hot path runs on any thread, by the frame's word alone: find, latch, copy, let go (Pages). Everything else steps
// the stripe of the page under its latch (Stripes), performs the protocol's actions (HeldFrames, LocalHomeStore, Peers,
// Flusher), and wakes the accesses that may go on, each on the shard that asked.
#pragma once

#include <memory>
#include <vector>

#include "coherence/adoption/adoption.hpp"
#include "coherence/adoption/arena_recorder.hpp"
#include "coherence/cache/inbox.hpp"
#include "coherence/cache/volume_end.hpp"
#include "coherence/executor/host_parts.hpp"
#include "coherence/home_store/eviction.hpp"
#include "coherence/pages/page_accesses.hpp"

namespace tarn {

struct CacheConfiguration {
    HostId self = 0;
    std::vector<HostId> hosts;  // all of the cluster, in the order of the configuration
    size_t frame_count = 0;
    Nodes nodes;               // of the machine; frames are divided among them
    size_t landing_bytes = 0;  // memory for clients' writes to come in, in the arena (Arena::landing)
    size_t clients_bytes = 0;  // and for what front ends note of their clients (Arena::clients)
    std::vector<Loop*> shards;
    protocol::WriteLease lease;
};

class Cache final : Pages::Listener {
  public:
    // The store must outlive the cache. arena: the previous process's, if Adoption::claim() accepted it.
    static Result<std::unique_ptr<Cache>> create(const CacheConfiguration& configuration, Store& store,
                                                 std::unique_ptr<Arena> arena = nullptr);
    ~Cache();
    // Call it before any link can come up.
    void set_fabric(Fabric& fabric);
    // Shutdown: every present and later wait of an access fails with cancelled; nothing is stepped any more.
    void abandon();
    bool abandoned() const { return stripes_.abandoned(); }

    HostId self() const { return membership_.self(); }
    HostId home_of(PageId page) const { return membership_.home_of(page); }
    Fabric* fabric() { return peers_.fabric(); }
    // Frames whose bytes are not in the store, or not at home.
    size_t dirty_frame_count();
    // How many pages were taken over from the previous process.
    size_t adopted_page_count() const { return adopted_page_count_; }
    // Of writes that it had under way, and that are finished now (write_receipts.hpp).
    std::span<const uint64_t> adopted_receipts() const { return adopted_receipts_; }

    Store& store() { return parts_.store; }
    FramePool& pool() { return *pool_; }
    Membership& membership() { return membership_; }
    const Membership& membership() const { return membership_; }
    Peers& peers() { return peers_; }
    Pages& pages() { return pages_; }
    PageAccesses& accesses() { return accesses_; }
    WritableShare& writable_share() { return writable_share_; }
    PageProvider& provider() { return provider_; }
    FrameSupply& supply() { return supply_; }
    HeldFrames& held_frames() { return held_frames_; }
    LocalHomeStore& home_store() { return home_store_; }
    Eviction& eviction() { return eviction_; }
    Verifiers& verifiers() { return verifiers_; }
    Flusher& flusher() { return flusher_; }
    Stripes& stripes() { return stripes_; }
    HomeStart& home_start() { return home_start_; }
    Inbox& inbox() { return inbox_; }
    VolumeEnd& volume_end() { return volume_end_; }
    VolumeUses& uses() { return uses_; }

  private:
    Cache(const CacheConfiguration& configuration, Store& store, std::unique_ptr<Arena> arena);

    // Pages::Listener
    void on_quiet(Frame& frame, PageId page) override { stripes_.step(HeldFrames::quiesced(frame, page)); }
    void on_first_use(LossView& view, HostId home) override { flusher_.count_from_now(view, home); }

    std::unique_ptr<FramePool> pool_;
    const HostParts parts_;
    Membership membership_;
    Peers peers_;
    Pages pages_;
    WritableShare writable_share_;
    PageProvider provider_;
    FrameSupply supply_;
    HeldFrames held_frames_;
    LocalHomeStore home_store_;
    Eviction eviction_;
    Verifiers verifiers_;
    Flusher flusher_;
    VolumeUses uses_;
    PageAccesses accesses_;
    ArenaRecorder recorder_;
    Stripes stripes_;
    HomeStart home_start_;
    Inbox inbox_;
    VolumeEnd volume_end_;
    size_t adopted_page_count_ = 0;
    std::vector<uint64_t> adopted_receipts_;
};

}  // namespace tarn
