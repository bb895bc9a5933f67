// Verifiers: each home's write verifier, as this host last heard it. If one changes, writes may be lost. Any thread.
#pragma once

#include <array>
#include <atomic>

#include "coherence/membership/membership.hpp"
#include "coherence/protocol/flush.hpp"

namespace tarn {

class Verifiers {
  public:
    Verifiers(const Membership& membership, const Store& store) : membership_(membership), store_(store) {}

    // This host's own, as a home.
    protocol::Verifier own() const {
        return protocol::verifier_of(membership_.process().first_intact(),
                                     static_cast<uint32_t>(store_.loss_generation()));
    }
    // 0: nothing was heard of this home; then this host has no page of it.
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
