// Random: one stream of random numbers (SplitMix64). A seed is split into independent streams, so that more draws for
// one purpose do not change those for another.
#pragma once

#include <cstdint>

#include "tiers/page.hpp"

namespace tarn::sim {

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}

    Random split(uint64_t stream) const { return Random(mix64(state_ ^ mix64(stream + 0x9e3779b97f4a7c15ULL))); }

    uint64_t next() {
        state_ += 0x9e3779b97f4a7c15ULL;
        return mix64(state_ ^ (state_ >> 30));
    }
    uint64_t below(uint64_t bound) { return next() % bound; }
    uint64_t between(uint64_t first, uint64_t last) { return first + below(last - first + 1); }
    bool chance(unsigned percent) { return below(100) < percent; }

  private:
    uint64_t state_;
};

}  // namespace tarn::sim
