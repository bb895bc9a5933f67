// PageProvider: keeps frames free. Runs as one task per shard, started when free frames run low there.
//
// It asks Replacement for cold frames and gives each up: clean ones at once, dirty ones of other homes by an eviction
// that carries the bytes, home's own bytes by a batched write into the store. Pages of a home that is near its
// WritableShare go even while frames are free. Pages that describe volumes stay. A reserve that ordinary accesses may
// not take is for bytes that other hosts send; only local writes refill it, so hosts full of each other's dirty pages
// cannot block each other.
#pragma once

#include <span>

#include "coherence/fabric/peers.hpp"
#include "coherence/membership/membership.hpp"
#include "coherence/pages/pages.hpp"
#include "coherence/pages/writable_share.hpp"
#include "utils/per_loop.hpp"

namespace tarn {

class FrameSupply;

class PageProvider {
  public:
    // How a page leaves its frame.
    class Evictor {
      public:
        // Replacement found this frame cold. True: its page is leaving, or gone.
        virtual bool try_evict(FrameId id, std::vector<FrameId>& to_store) = 0;
        // The same for a clean page of another home, without waiting for its answer, even if that home is unreachable.
        // Pages of names and sizes go only if `any`: without them nobody could use the frame.
        virtual bool drop_clean(FrameId id, bool any) = 0;
        // Makes home's bytes in these frames durable, and frees those that have no other use.
        virtual Task<Result<>> evict_home_bytes(std::vector<FrameId> ids) = 0;
        // This host's store has failed.
        virtual void check_store_failure() = 0;
        // Nothing is evicted any more.
        virtual bool abandoned() const = 0;

      protected:
        ~Evictor() = default;
    };
    struct Parts {
        const Membership& membership;
        const Peers& peers;
        FramePool& pool;
        Pages& pages;
        FrameSupply& supply;
        const WritableShare& writable_share;
        Evictor& evictor;
    };
    PageProvider(const Parts& parts, std::span<Loop* const> shards);

    // The provider starts when fewer frames are free than this.
    size_t low_mark() const { return low_mark_; }
    size_t reserve_count() const { return reserve_count_; }

    // On a shard: starts a run there unless one is under way.
    void kick();
    // The same for homes that are near their WritableShare: runs until enough of their pages are leaving.
    void relieve();

    // At a stop, once everything is durable: homes must not take pages that this host could write for lost.
    Task<> give_up_all();

  private:
    // The state of a shard's task.
    struct Shard {
        size_t hand = 0;  // where drop_clean() looked last
        FrameId spared_last = 0;
        size_t spared_count = 0;  // in this round of replacement's hand
        bool is_providing = false;
        bool is_relieving = false;
    };
    Task<> provide(Shard& shard);
    void drop_clean(Shard& shard, size_t count);
    bool is_spared(Shard& shard, FrameId id);
    Task<> relieve_homes(Shard& shard);
    bool try_relieve(FrameId id);

    const Parts parts_;
    size_t reserve_count_;
    size_t low_mark_;
    size_t high_mark_;
    PerLoop<Shard> shards_;
};

}  // namespace tarn
