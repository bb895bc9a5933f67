// What the list of losses says to people: what one loss took of one volume is one line, as is what it may have taken of
// any.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/control/control.hpp"
#include "tiers/nvme/table/loss_list.hpp"

namespace tarn {

// By their generations. A host without a name is not known.
std::vector<LossStatus> loss_statuses(std::span<const Loss> losses,
                                      const std::function<std::optional<std::string>(VolumeId)>& name_of_volume,
                                      const std::function<std::string(HostId)>& name_of_host);

}  // namespace tarn
