// What somebody can do whose store is refused, where the refusal itself does not say it.
#pragma once

#include <string>

#include "daemon/configuration/configuration.hpp"
#include "tiers/nvme/device/superblock.hpp"
#include "utils/result.hpp"

namespace tarn {

// Of the store that the configuration names. Empty: the error says all there is.
std::string advice_on_refused_store(const Configuration& configuration, const Error& error);

// Of one whose host has another number than the configuration gives it: both, and what is safe. Empty: it is the same.
std::string advice_on_other_number(const Configuration& configuration, const StoreIdentity& found);

}  // namespace tarn
