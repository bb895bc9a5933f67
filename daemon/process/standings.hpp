// Standings: tells the other hosts every few seconds how far this host's store has come, so that they notice when an
// old copy of it is put back. They are also told with each new link (Fabric::Receiver).
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
    // Tells the hosts that are linked, without waiting for their answers.
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
