// DeadHosts: hosts that an operator declares dead, on all hosts of the cluster.
//
// A host of a static list that cannot be reached may be alive and serving reads, so nothing is taken from it. An
// operator who knows that it is dead says so once, on any host. That is refused while any host within reach is
// connected to it. Otherwise every host within reach is told at once, and the others when they come back. Each
// remembers it in its store.
#pragma once

#include <string>
#include <vector>

#include "coherence/cache/cache.hpp"

namespace tarn {

class DeadHosts {
  public:
    // On the first shard. peers: the other hosts. The cache has a fabric, which calls us as long as it runs, and
    // outlives this.
    DeadHosts(Cache& cache, std::vector<HostId> peers);

    struct Outcome {
        std::vector<HostId> told;
        std::vector<HostId> not_told;
    };
    // Errors: busy (some host is connected with it; the text says so), io. On the first shard.
    Task<Result<Outcome>> forget(HostId host);

    // Tells hosts whose links come up which hosts are dead. Runs until the cache is abandoned.
    Task<> keep_told();

  private:
    Task<Result<std::string>> tell_what_is_known(HostId from, std::string request) const;
    Task<Result<std::string>> hear_of_death(HostId from, std::string request);
    bool is_another(HostId host, HostId from) const;
    std::vector<HostId> peers_but(HostId host) const;
    static Task<> tell(Cache& cache, HostId peer, std::string request);

    Cache& cache_;
    std::vector<HostId> peers_;
};

}  // namespace tarn
