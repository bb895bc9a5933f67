// Digest: collects all state that decides what happens next, word by word, for the search through all states.
//
// It omits state that does not matter. Plain words are hashed at once; the others are kept with their sort, so that the
// reader can ignore irrelevant differences: only the order of tenures counts, and which are neighbours; only which ids
// are equal; only which host plays which role.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coherence/protocol/message.hpp"
#include "coherence/protocol/page_version.hpp"
#include "tiers/page.hpp"
#include "utils/assert.hpp"

namespace tarn::protocol {

class Digest {
  public:
    // From `tenure` on, values grow with time; each host counts its own ids.
    enum class Sort : uint8_t { host, hosts, tenure, version, request, flush, ask, waiter, ticket };
    struct Word {
        uint64_t value : 48;
        uint64_t sort : 8;
        uint64_t counter : 8;  // the host that counts the ids

        Sort sort_of() const { return static_cast<Sort>(sort); }
    };

    void clear() {
        words_.clear();
        hash_ = 0;
    }
    std::span<const Word> words() const { return words_; }
    uint64_t hash() const { return hash_; }  // of the plain words, and the sorts of the others

    // Like wyhash: one multiplication to 128 bits, whose halves are folded.
    static uint64_t mix(uint64_t hash, uint64_t word) {
        const auto product =
            static_cast<unsigned __int128>(hash ^ word ^ 0xa0761d6478bd642fULL) * 0xe7037ed1a0b428dbULL;
        return (static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64)) + 0x9e3779b97f4a7c15ULL;
    }

    template <class... Values>
    void add(Values... values) {
        ((hash_ = mix(hash_, static_cast<uint64_t>(values))), ...);
    }
    void host(HostId host) { host == no_host ? add('-') : put(Sort::host, host); }
    void hosts(HostSet hosts) { put(Sort::hosts, hosts); }
    void tenure(Tenure tenure) { tenure == 0 ? add('-') : put(Sort::tenure, tenure); }
    void version(PageVersion version) {
        tenure(version.tenure);
        add(version.sequence);
    }
    void version(uint64_t version) { put(Sort::version, version); }
    void request(HostId requester, RequestId id) { put_id(Sort::request, requester, id); }
    void flush(HostId requester, RequestId id) { put_id(Sort::flush, requester, id); }
    void ask(HostId home, RequestId id) { put_id(Sort::ask, home, id); }
    void waiter(HostId host, uint64_t token) { put_id(Sort::waiter, host, token); }
    void ticket(HostId home, uint64_t ticket) { put_id(Sort::ticket, home, ticket); }

  private:
    void put_id(Sort sort, HostId counter, uint64_t id) {
        id == 0 || counter == no_host ? add('-') : put(sort, id, counter);
    }
    void put(Sort sort, uint64_t value, HostId counter = 0) {
        TARN_ASSERT(value >> 48 == 0);
        hash_ = mix(hash_, ~static_cast<uint64_t>(sort));
        words_.push_back({.value = value, .sort = static_cast<uint64_t>(sort), .counter = counter});
    }

    std::vector<Word> words_;
    uint64_t hash_ = 0;
};

}  // namespace tarn::protocol
