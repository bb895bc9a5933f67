// ShutdownBarrier: hosts that stop at the same time wait for each other's flush.
//
// A host's last flush may need others: as homes, or as owners of pages that it is home of. So a host that stops says
// so, flushes, says that it has flushed, and stays until every host it knows to be stopping has flushed too. One that
// goes on serving is not waited for.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "coherence/cache/cache.hpp"

namespace tarn {

class ShutdownBarrier {
  public:
    // peers: the other hosts. The cache has a fabric, which calls us as long as it runs, and outlives this.
    ShutdownBarrier(Cache& cache, std::vector<HostId> peers);

    void say_stopping() { say(CallKind::stopping); }
    // Hosts that are away because they stopped, each after its last flush: what they had been sent is durable there.
    HostSet gone() const;
    // Waits until every host that is linked and stopping has flushed, or the cache is abandoned.
    Task<> say_flushed_and_wait();

  private:
    Task<Result<std::string>> hear(HostId from, CallKind what);
    // Does not wait for answers: a host that is linked and hangs would hold up the stop.
    void say(CallKind what);
    static Task<> tell(Fabric& fabric, HostId peer, CallKind what);
    bool linked(HostId peer) const { return cache_.fabric()->linked(peer); }
    bool all_flushed() const;

    Cache& cache_;
    std::vector<HostId> peers_;
    std::atomic<HostSet> stopping_{0};                           // and not yet flushed
    std::array<std::atomic<Incarnation>, hosts_max> flushed_{};  // the process of each that has flushed
};

}  // namespace tarn
