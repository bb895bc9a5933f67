// Handshake: what two hosts say over a new connection before there is a link: who they are, that both hold the
// cluster's key, and that neither's store is older than the other remembers it (authentication.hpp has the layout).
//
// On the fabric's first shard. Keeps nothing of a connection; asks the receiver what must be decided. Used by
// LinkedFabric, which ends what takes too long.
#pragma once

#include <array>

#include "coherence/fabric/fabric.hpp"
#include "coherence/fabric/link/authentication.hpp"
#include "coherence/fabric/link/linked_fabric_configuration.hpp"
#include "coherence/fabric/transport/transport.hpp"

namespace tarn {

class Handshake {
  public:
    Handshake(const LinkedFabricConfiguration& configuration, Fabric::Receiver& receiver)
        : configuration_(configuration), receiver_(receiver) {}

    // With whoever connected. claimed: the host that the peer says it is, once it said so; else it is left as it was.
    // Errors: unavailable, of which nothing needs to be said; refused; closed, io, cancelled.
    Task<Result<Introduction>> accept(Connection& connection, HostId& claimed);
    // With the host that a connection was made to. Errors: refused; closed, io, cancelled.
    Task<Result<Introduction>> connect(Connection& connection, HostId host);
    // Only whether the host there was given the same list. Errors: refused, if not; closed, io, cancelled.
    Task<Result<>> compare_lists(Connection& connection);

  private:
    Introduction introduce_self() const;
    bool is_of_cluster(const Introduction& introduction) const;
    bool has_other_list(const Introduction& introduction) const;
    bool accepts_process(const Introduction& introduction);
    Task<Result<>> compare_stores(Connection& connection, HostId host);

    const LinkedFabricConfiguration& configuration_;
    Fabric::Receiver& receiver_;
    std::array<Incarnation, hosts_max> turned_away_{};  // said once of each process
};

}  // namespace tarn
