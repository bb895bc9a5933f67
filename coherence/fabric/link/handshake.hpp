// Handshake: over a new connection, before it becomes a link, two hosts tell who they are, prove that they hold the
// cluster's key, and check that neither store is older than the other host remembers it (layout: authentication.hpp).
//
// On the fabric's first shard. Keeps no state of a connection; leaves decisions to the receiver. Used by LinkedFabric,
// which ends handshakes that take too long.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "coherence/fabric/fabric.hpp"
#include "coherence/fabric/link/authentication.hpp"
#include "coherence/fabric/link/linked_fabric_configuration.hpp"
#include "coherence/fabric/link/offers.hpp"
#include "coherence/fabric/transport/transport.hpp"

namespace tarn {

class Handshake {
  public:
    // Who is at the other end.
    struct Met {
        Introduction peer;
        std::vector<Offer> offers;  // after connect(): decide() comes next, if there are some
        bool has_moved = false;     // after accept(): the peer has connected over another transport
    };

    Handshake(const LinkedFabricConfiguration& configuration, Fabric::Receiver& receiver)
        : configuration_(configuration), receiver_(receiver) {}

    // With a peer that connected. claimed: set to the host that the peer claims to be, once it says so. Errors:
    // unavailable, which needs no log line; refused; closed, io, cancelled.
    Task<Result<Met>> accept(Connection& connection, HostId& claimed);
    // With the host that this one connected to. Errors: refused; closed, io, cancelled.
    Task<Result<Met>> connect(Connection& connection, HostId host);
    // Tells the host that was connected to whether the link comes up over this connection.
    static Task<Result<>> decide(Connection& connection, Decision decision);
    // Before the first handshake: told to hosts that are met over TCP.
    void offer(Offer offer) { offers_.push_back(std::move(offer)); }
    // Only checks that the host there has the same list. Errors: refused, if not; closed, io, cancelled.
    Task<Result<>> compare_lists(Connection& connection);

  private:
    Introduction introduce_self() const;
    bool is_of_cluster(const Introduction& introduction) const;
    bool has_other_list(const Introduction& introduction) const;
    Fabric::Receiver::LinkDecision decide_on(const Introduction& introduction);
    // True: both have offers.
    Task<Result<bool>> compare_stores(Connection& connection, const Introduction& peer);
    Task<Result<std::vector<Offer>>> exchange_offers(Connection& connection) const;

    const LinkedFabricConfiguration& configuration_;
    Fabric::Receiver& receiver_;
    std::vector<Offer> offers_;
    std::array<Incarnation, hosts_max> turned_away_{};  // logged once per process
};

}  // namespace tarn
