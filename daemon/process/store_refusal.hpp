// What somebody can do whose store is refused, where the refusal itself does not say it.
#pragma once

#include <string>

#include "daemon/configuration/configuration.hpp"
#include "tiers/nvme/device/superblock.hpp"
#include "utils/result.hpp"

namespace tarn {

// Of the store that the configuration names. Empty: the error says all there is.
std::string advice_on_refused_store(const Configuration& configuration, const Error& error);

// Of a store that was made for another host number than the configuration gives: names both, and says what is safe.
// Empty: the numbers agree.
std::string advice_on_other_number(const Configuration& configuration, const StoreIdentity& found);

}  // namespace tarn
