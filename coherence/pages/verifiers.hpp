// Verifiers: under which write verifier each home serves, as this host last heard it. A change of one says that writes
// may be lost. Any thread.
#pragma once

#include <array>
#include <atomic>

#include "coherence/membership/membership.hpp"
#include "coherence/protocol/flush.hpp"

namespace tarn {

class Verifiers {
  public:
    Verifiers(const Membership& membership, const Store& store) : membership_(membership), store_(store) {}

    // Of this host as a home.
    protocol::Verifier own() const {
        return protocol::verifier_of(membership_.process().incarnation,
                                     static_cast<uint32_t>(store_.loss_generation()));
    }
    // 0: nothing was heard of this home, and this host has not got any page of it then.
    protocol::Verifier present(HostId home) const {
        return home == membership_.self() ? own() : heard_[home].load(std::memory_order_relaxed);
    }
    void hear(HostId home, protocol::Verifier verifier) { heard_[home].store(verifier, std::memory_order_relaxed); }

  private:
    const Membership& membership_;
    const Store& store_;
    std::array<std::atomic<protocol::Verifier>, hosts_max> heard_{};
};

}  // namespace tarn
