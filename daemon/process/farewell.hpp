// Farewell: hosts that stop at the same time wait for each other's flush.
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

class Farewell {
  public:
    // peers: the other hosts. The cache has a fabric, and outlives this.
    Farewell(Cache& cache, std::vector<HostId> peers) : cache_(cache), peers_(std::move(peers)) {}

    static bool is_call(const std::string& request) { return request == stopping_call || request == flushed_call; }
    Result<std::string> on_call(HostId from, const std::string& request);

    void say_stopping() { say(stopping_call); }
    // Those who are away because they stopped, each after its last flush: what they were sent before is durable there.
    protocol::HostSet gone() const;
    // Until nobody who is linked and stopping has a flush to do, or the cache is abandoned.
    Task<> say_flushed_and_wait();

  private:
    static constexpr const char* stopping_call = "Q";
    static constexpr const char* flushed_call = "q";

    // Waits for no answer: a host that is linked and hangs would keep us.
    void say(const char* what);
    static Task<> tell(Fabric& fabric, HostId peer, std::string what);
    bool linked(HostId peer) const { return cache_.fabric()->linked(peer); }
    bool all_flushed() const;

    Cache& cache_;
    std::vector<HostId> peers_;
    std::atomic<protocol::HostSet> stopping_{0};                           // and not yet flushed
    std::array<std::atomic<protocol::Incarnation>, hosts_max> flushed_{};  // the process of each that has flushed
};

}  // namespace tarn
