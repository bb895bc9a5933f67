// The list of losses as people read it: one line for each loss and volume, and one for a loss that may concern any
// volume.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/nvme/table/loss_list.hpp"

namespace tarn {

// Pages homed here that may have lost writes, all of one volume, with one host's memory.
struct LossStatus {
    std::string volume;  // its name when it was last seen, or #ID; empty: any
    std::string host;
    uint32_t generation = 0;
    uint64_t page_count = 0;  // of data
    uint64_t first_page = 0;
    uint64_t last_page = 0;
    bool attributes = false;  // as well: size, times, owner and permissions
    int64_t at_ns = 0;
};

// In the order of their generations. name_of_host returns an empty text for an unknown host.
std::vector<LossStatus> loss_statuses(std::span<const Loss> losses,
                                      const std::function<std::optional<std::string>(VolumeId)>& name_of_volume,
                                      const std::function<std::string(HostId)>& name_of_host);

}  // namespace tarn
