// Membership: the hosts of the cluster: the last process met of each, which were declared dead, which are back, whose
// stores have failed; and where each page's home is.
//
// It writes what the next process must know to the arena (whom it met, whether losses lack their record, that it was in
// doubt) and to the store (dead hosts) before anybody acts on it. Any thread may read; links report from their shards.
// It sends nothing and steps nothing: the cache does.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
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
    // A static list of peers has one view.
    uint32_t view_epoch() const { return 1; }
    // The host that keeps the names of the volumes: the first of a static list.
    HostId registrar() const { return hosts_.front(); }
    // The present map. A published map lives as long as the membership: use one for questions that must agree.
    const RangeMap& ranges() const { return *ranges_.load(std::memory_order_acquire); }
    HostId home_of(PageId page) const { return ranges().home_of(page); }
    // Replaces the present map, whose epoch must be lower.
    void publish(const RangeMap& ranges);

    // This host's process.
    Process process() const { return process_; }
    // The last process that this host met there; its own for itself.
    Process process_of(HostId host) const;
    Incarnation incarnation_of(HostId host) const { return process_of(host).incarnation; }
    // Announced when a link comes up or breaks, when this host has recovered, and when it stops.
    Broadcast& changed() { return changed_; }
    // A host came or went in the last seconds, or this one started.
    bool has_just_changed() const;

    // A link came up. Every stripe hears of it between begin and end. If this process ends before end_meeting(), the
    // next process must tell its stripes.
    struct Meeting {
        Process previous;                      // that was met before
        std::optional<Recovery::Moment> lost;  // with the memory of that process, and not on record yet
    };
    Meeting begin_meeting(HostId host, Process process);
    void end_meeting(HostId host, Process process, Meeting meeting);
    void on_link_down(HostId host);
    // The host has reported, over its present link, what it holds of the pages homed here.
    void on_reported(HostId host);
    // The next process is to meet this host as if for the first time.
    void forget_meeting(HostId host) { remember_met(host, {}); }

    // The host was declared dead, up to an incarnation: nobody waits for it, and it may return only as another process.
    bool is_dead(HostId host) const { return contains(dead_.load(std::memory_order_seq_cst), host); }
    // The newest process of the host that counts as dead.
    Incarnation dead_incarnation(HostId host) const;
    // What only it had is lost, and unrecorded from the moment on from which nobody waits for it; none if it was dead
    // already. Errors: io.
    Task<Result<std::optional<Recovery::Moment>>> declare_dead(HostId host, Incarnation incarnation);
    // Errors: io.
    Task<Result<>> declare_alive(HostId host);
    // The host was just declared dead, but is linked again: counts as alive, durably only after declare_alive().
    void on_returned(HostId host);
    // False: the host is being declared alive already. Ends with declare_alive().
    bool begin_return(HostId host) { return !contains(returning_.fetch_or(set_of(host)), host); }

    // Homes whose stores take nothing any more: this host's own, and others', as their messages say. Their dirty pages
    // stay where they are, and no new page of theirs becomes writable, so that memory is left for reads. Ends with the
    // process there. The catalog's few pages stay writable: opening a volume needs them.
    bool store_failed_at(HostId home) const {
        return home == self_ ? store_.failed() : contains(failed_stores_.load(), home);
    }
    bool refuses_writes_of(PageId page) const {
        return page.volume() != catalog_volume && store_failed_at(home_of(page));
    }
    bool any_store_failed() const { return store_.failed() || failed_stores_.load(std::memory_order_relaxed) != 0; }
    void on_store_failed(HostId host) { failed_stores_ |= set_of(host); }

    // True while this home does not serve yet. recovery(): the rule, under its lock.
    bool recovering() const { return recovering_.load(std::memory_order_relaxed); }
    Recovery::Moment moment() const;
    Recovery::Next next(Recovery::Moment moment, bool all_marked);
    bool recorded(Recovery::Moment moment, bool losses);
    // Whether possible losses are still to be recorded, and the moment of that answer.
    struct Lack {
        Recovery::Moment moment;
        bool losses;
    };
    Lack lack() const;
    // Bytes that only the previous process's memory had are gone, and the loss is not on record yet.
    bool memory_was_lost() const { return header_.memory_was_lost.load(std::memory_order_relaxed); }
    // This process took over the previous one's whole memory, and nothing was lost.
    bool has_memory() const;
    // While losses are not on record yet, the next process must assume the worst.
    Recovery::Moment begin_unrecorded_losses();
    // Likewise, of single pages that this home serves.
    Recovery::Moment begin_page_losses();
    void end_unrecorded_losses(Recovery::Moment begun);
    // This home serves and cannot be about to discover a loss: none is being recorded, and no host is away whose memory
    // may be gone.
    bool is_settled() const;

  private:
    void remember_met(HostId host, Process process);
    Recovery::Moment begin_unrecorded_losses_locked();

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
    std::atomic<HostSet> returning_{0};  // dead, and back as another process: being recorded
    std::atomic<HostSet> failed_stores_{0};
    std::atomic<bool> recovering_{true};

    mutable SpinLock lock_;
    std::vector<std::unique_ptr<const RangeMap>> published_;  // the last one is the present one
    Recovery recovery_;
    HostSet met_now_ = 0;                   // linked hosts of which every stripe has heard
    std::array<Process, hosts_max> met_{};  // the last process of each host
};

}  // namespace tarn
