// Standings: tells the other hosts now and then how far this host's store has come, so that they know a store that is
// copied back. With a link they hear it, too (Fabric::Receiver).
#pragma once

#include <string>
#include <vector>

#include "coherence/cache/cache.hpp"

namespace tarn {

class Standings {
  public:
    // On the first shard. peers: the other hosts. The cache has a fabric, which calls us as long as it runs.
    Standings(Cache& cache, Loop& loop, std::vector<HostId> peers);

    // Returns after stop().
    Task<> keep_told();
    // Those that are linked; nobody waits for it.
    void tell();
    void stop() { pause_.cancel(); }

  private:
    Task<Result<std::string>> hear(HostId from, std::string request);
    static Task<> tell_one(Fabric& fabric, HostId peer, std::string request);

    Cache& cache_;
    std::vector<HostId> peers_;
    Timer pause_;
    StoreStanding told_;
};

}  // namespace tarn
