// The list of losses as people read it: one line for each loss and volume, and one for a loss that may concern any
// volume.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/control/control.hpp"
#include "tiers/nvme/table/loss_list.hpp"

namespace tarn {

// In the order of their generations. name_of_host returns an empty text for an unknown host.
std::vector<LossStatus> loss_statuses(std::span<const Loss> losses,
                                      const std::function<std::optional<std::string>(VolumeId)>& name_of_volume,
                                      const std::function<std::string(HostId)>& name_of_host);

}  // namespace tarn
