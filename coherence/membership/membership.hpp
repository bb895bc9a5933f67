// Membership: who there is. The hosts of the cluster, which process each one was last met as, who was declared dead,
// who is back, which of their stores have failed, and where each page's home is.
//
// What the next process must know of it is written to the arena (whom this host met, whether losses lack their record)
// and to the store (who was declared dead) before anybody acts on it. Any thread may ask; links tell it from their
// shards. It sends nothing and steps nothing: the cache does, by what it says.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "coherence/membership/host_set.hpp"
#include "coherence/membership/process.hpp"
#include "coherence/membership/range_map.hpp"
#include "coherence/membership/recovery.hpp"
#include "tiers/dram/arena.hpp"
#include "tiers/nvme/store.hpp"
#include "utils/broadcast.hpp"
#include "utils/spinlock.hpp"

namespace tarn {

class Membership {
  public:
    // hosts: all of the cluster, in the order of the configuration. header and store must outlive it.
    Membership(HostId self, std::span<const HostId> hosts, ArenaHeader& header, Store& store);

    HostId self() const { return self_; }
    std::span<const HostId> hosts() const { return hosts_; }
    HostSet host_set() const { return host_set_; }
    bool is_alone() const { return hosts_.size() == 1; }
    // Of a static list of peers there is one view.
    uint32_t view_epoch() const { return 1; }
    // The host that keeps the names of the volumes: of a static list the first.
    HostId registrar() const { return hosts_.front(); }
    // The present map. A snapshot: one that was published stays valid as long as the membership, so whoever asks
    // several things of it asks one snapshot.
    const RangeMap& ranges() const { return *ranges_.load(std::memory_order_acquire); }
    HostId home_of(PageId page) const { return ranges().home_of(page); }
    // In the present map's stead, which its epoch exceeds.
    void publish(const RangeMap& ranges);

    // The process of this host.
    Process process() const { return process_; }
    // The process that this host last met there; its own for itself.
    Process process_of(HostId host) const;
    Incarnation incarnation_of(HostId host) const { return process_of(host).incarnation; }
    // Announced when a link comes up or breaks, when this host has recovered, and when it stops.
    Broadcast& changed() { return changed_; }
    // A host came or went in the last seconds, or this one began.
    bool has_just_changed() const;

    // A link came up. Between the two calls every stripe hears of it: until then the next process must hear of it, too.
    // begin: the process that was met before.
    Process begin_meeting(HostId host, Process process);
    void end_meeting(HostId host, Process process, Process previous);
    void on_link_down(HostId host);
    // It has told, over its present link, what it holds of the pages homed here.
    void on_reported(HostId host);
    // The next process is to meet this host as if for the first time.
    void forget_meeting(HostId host);

    // Declared dead, up to an incarnation: it is waited for no more, and may return only as another process.
    bool is_dead(HostId host) const { return contains(dead_.load(std::memory_order_seq_cst), host); }
    // The last process of a dead host that is taken for dead.
    Incarnation dead_incarnation(HostId host) const;
    // Errors: io.
    Task<Result<>> declare_dead(HostId host, Incarnation incarnation);
    Task<Result<>> declare_alive(HostId host);
    // It is back already, as the process that was declared dead. In memory; declare_alive() makes it durable.
    void on_returned(HostId host);
    // False: it is being declared alive already. Ends with declare_alive().
    bool begin_return(HostId host);

    // Stores that take nothing any more: this host's own, and others', as their messages say. Then what is dirty stays
    // where it is, and no new page of that home becomes writable, so that memory is left for reads. Ends with the
    // process there. The catalog's few pages stay writable: who opens a volume needs them.
    bool store_failed_at(HostId home) const {
        return home == self_ ? store_.failed() : contains(failed_stores_.load(), home);
    }
    bool refuses_writes_of(PageId page) const {
        return page.volume() != catalog_volume && store_failed_at(home_of(page));
    }
    bool any_store_failed() const { return store_.failed() || failed_stores_.load(std::memory_order_relaxed) != 0; }
    void on_store_failed(HostId host) { failed_stores_ |= set_of(host); }

    // This home does not serve yet. recovery: to ask and tell, under the lock.
    bool recovering() const { return recovering_.load(std::memory_order_relaxed); }
    Recovery::Moment moment() const;
    Recovery::Next next(Recovery::Moment moment, bool all_marked);
    bool recorded(Recovery::Moment moment, bool losses);
    // Whether what may be lost is yet to be recorded, and as of when.
    struct Lack {
        Recovery::Moment moment;
        bool losses;
    };
    Lack lack() const;
    // What the process before had in memory alone is gone, and not on record yet.
    bool memory_was_lost() const { return header_.memory_was_lost.load(std::memory_order_relaxed); }
    // This process took over all that the one before it had in memory, and nothing was lost.
    bool has_memory() const;
    // While losses are not on record yet, the next process must assume the worst.
    void begin_unrecorded_losses();
    void end_unrecorded_losses();
    // This home serves, and is about to find out of no loss: none is being recorded, and no host is away whose memory
    // may be gone.
    bool is_settled() const;

  private:
    void remember_met(HostId host, Process process);

    HostId self_;
    std::vector<HostId> hosts_;
    HostSet host_set_ = 0;
    Process process_;
    std::atomic<const RangeMap*> ranges_{nullptr};
    ArenaHeader& header_;
    Store& store_;
    Broadcast changed_;
    std::atomic<uint64_t> changed_at_ns_;
    std::atomic<HostSet> dead_{0};
    std::atomic<HostSet> returning_{0};  // dead, and back as another process: this is being remembered
    std::atomic<HostSet> failed_stores_{0};
    std::atomic<bool> recovering_{true};

    mutable SpinLock lock_;
    std::vector<std::unique_ptr<const RangeMap>> published_;  // the last one is the present one
    Recovery recovery_;
    HostSet met_now_ = 0;                   // linked, and every stripe has heard of it
    std::array<Process, hosts_max> met_{};  // the last process of each host
};

}  // namespace tarn
