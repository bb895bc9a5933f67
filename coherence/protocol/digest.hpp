// Digest: a hash of all state that decides what happens next, for a search through all states (tests/sim).
//
// Only what matters counts: tenures by how far they lie below the page's present one, request ids by how old they are,
// and lists by what is in them. States that differ in nothing else behave equally, and have equal digests.
#pragma once

#include <array>
#include <cstdint>

#include "coherence/protocol/message.hpp"
#include "coherence/protocol/position.hpp"
#include "tiers/page.hpp"

namespace tarn::protocol {

class Digest {
  public:
    // base: the greatest tenure there is. last_ids: the last request id of each host.
    Digest(Tenure base, const std::array<RequestId, hosts_max>& last_ids) : base_(base), last_ids_(last_ids) {}

    template <class... Words>
    void add(Words... words) {
        (add_word(static_cast<uint64_t>(words)), ...);
    }
    void tenure(Tenure tenure) { add_word(tenure == 0 ? ~uint64_t{0} : base_ - tenure); }
    void position(Position position) {
        tenure(position.tenure);
        add_word(position.sequence);
    }
    void request(HostId requester, RequestId id) {
        add_word(id == 0 || requester == no_host ? ~uint64_t{0} : uint64_t{last_ids_[requester] - id});
    }
    uint64_t value() const { return mix64(hash_); }

  private:
    // As wyhash: one multiplication to 128 bits, whose halves are folded.
    void add_word(uint64_t word) {
        const auto product =
            static_cast<unsigned __int128>(hash_ ^ word ^ 0xa0761d6478bd642fULL) * 0xe7037ed1a0b428dbULL;
        hash_ = (static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64)) + 0x9e3779b97f4a7c15ULL;
    }

    Tenure base_;
    std::array<RequestId, hosts_max> last_ids_;
    uint64_t hash_ = 0;
};

}  // namespace tarn::protocol
