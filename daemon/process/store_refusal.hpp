// Advice for the user whose store is refused, where the error itself gives none.
#pragma once

#include <string>

#include "daemon/configuration/configuration.hpp"
#include "tiers/nvme/device/superblock.hpp"
#include "utils/result.hpp"

namespace tarn {

// For the store that the configuration names. Empty: there is nothing to add to the error.
std::string advice_on_refused_store(const Configuration& configuration, const Error& error);

// For a store that was made for another cluster, or another host number, than the configuration gives: names both, and
// says what is safe. Empty: they agree.
std::string advice_on_other_store(const Configuration& configuration, const StoreIdentity& found);

}  // namespace tarn
