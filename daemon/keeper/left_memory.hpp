// The memory that a process has left behind, among what was kept for it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/keeper/keeper.hpp"
#include "tiers/dram/arena.hpp"
#include "utils/result.hpp"

namespace tarn {

// Takes every memory out of kept. Returns that of the last process of this store; where none is of this store, that of
// another one; null, if there is none. Errors: those of Arena::adopt, if not one can be used.
Result<std::unique_ptr<Arena>> take_last_memory(std::vector<Keeper::Kept>& kept, const std::array<uint8_t, 16>& store);

}  // namespace tarn
