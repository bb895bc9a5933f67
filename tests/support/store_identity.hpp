// The identity of a store that no cluster uses, and its own id: for tests of the store alone.
#pragma once

#include "tiers/nvme/device/superblock.hpp"

namespace tarn {

inline constexpr StoreIdentity store_identity = {.cluster = {0xc1}, .host = 2};
inline constexpr Uuid store_id = {5};

}  // namespace tarn
