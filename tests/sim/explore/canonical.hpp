// Canonical: gives all states that behave alike the same number.
//
// A state is several lists of words (tests/sim/explore/digest.hpp). Their values are replaced by ranks among the
// values of their sort that occur in the state:
//   - ids and versions are only compared with each other, and new ones are greater than all there are;
//   - tenures are compared, also with neighbours of another: t - 1, t + 1, and one step further. So a gap of more than
//     gap_max counts as one of gap_max.
// Then everything is hashed, for each way to name the interchangeable hosts, and the least hash counts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/sim/explore/digest.hpp"
#include "utils/assert.hpp"

namespace tarn::sim {

class Canonical {
  public:
    using Sort = protocol::Digest::Sort;
    using Word = protocol::Digest::Word;
    static constexpr HostId hosts = 3;
    using Names = std::array<HostId, hosts>;  // the new name of each host

    void clear() {
        for (Ranks& each : ranks_) each.count = 0;
    }
    // First all words of the state.
    void learn(std::span<const Word> words) {
        for (const Word& word : words)
            if (word.sort_of() >= Sort::tenure) ranks_of(word).insert(word.value);
    }
    bool knows(Sort sort, uint64_t value) const { return ranks_[index_of(sort, 0)].contains(value); }
    // Then each word as it counts.
    void rank() {
        for (Ranks& each : ranks_) {
            const uint64_t gap = &each == &ranks_[index_of(Sort::tenure, 0)] ? gap_max : 1;
            uint64_t rank = 0;
            for (size_t index = each.count; index-- > 0; each.ranks[index] = static_cast<uint8_t>(rank))
                if (index + 1 < each.count) rank += std::min(each.values[index + 1] - each.values[index], gap);
            TARN_ASSERT(rank < 256);
        }
    }
    // The words of one part of the state, when the hosts have these names.
    uint64_t hash(const protocol::Digest& digest, const Names& names) const {
        uint64_t hash = digest.hash();
        uint64_t packed = 0;
        size_t count = 0;
        for (const Word& word : digest.words()) {
            packed = packed << 8 | value_of(word, names);
            if (++count % 8 == 0) hash = protocol::Digest::mix(hash, packed);
        }
        return protocol::Digest::mix(hash, packed);
    }

  private:
    static constexpr uint64_t gap_max = 4;
    struct Ranks {
        std::array<uint64_t, 64> values;  // ascending
        std::array<uint8_t, 64> ranks;
        size_t count = 0;

        void insert(uint64_t value) {
            size_t place = count;
            while (place > 0 && values[place - 1] > value) --place;
            if (place > 0 && values[place - 1] == value) return;
            TARN_ASSERT(count < values.size());
            for (size_t index = count++; index > place; --index) values[index] = values[index - 1];
            values[place] = value;
        }
        bool contains(uint64_t value) const {
            for (size_t index = count; index-- > 0;)
                if (values[index] == value) return true;
            return false;
        }
        uint64_t rank_of(uint64_t value) const {
            for (size_t index = count; index-- > 0;)
                if (values[index] == value) return ranks[index];
            return 0;
        }
    };
    uint64_t value_of(const Word& word, const Names& names) const {
        switch (word.sort_of()) {
            case Sort::host: return names[word.value];
            case Sort::hosts: {
                uint64_t renamed = 0;
                for (HostId host = 0; host < hosts; ++host) renamed |= (word.value >> host & 1) << names[host];
                return renamed;
            }
            default: return ranks_[index_of(word.sort_of(), static_cast<HostId>(word.counter))].rank_of(word.value);
        }
    }
    static size_t index_of(Sort sort, HostId counter) {
        if (sort < Sort::request) return static_cast<size_t>(sort) - static_cast<size_t>(Sort::tenure);
        return 2 + (static_cast<size_t>(sort) - static_cast<size_t>(Sort::request)) * hosts + counter;
    }
    Ranks& ranks_of(const Word& word) { return ranks_[index_of(word.sort_of(), static_cast<HostId>(word.counter))]; }

    std::array<Ranks, 2 + 5 * hosts> ranks_;
};

}  // namespace tarn::sim
