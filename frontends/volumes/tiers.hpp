// Where the bytes of a volume are, as far as this host can tell from its own books: no message, and no page is touched,
// moved or brought in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coherence/cache/cache.hpp"
#include "frontends/volumes/volume.hpp"

namespace tarn {

// See Volume::tiers.
std::vector<TierExtent> tiers_of(Cache& cache, VolumeId volume, std::span<const Extent> extents);

}  // namespace tarn
