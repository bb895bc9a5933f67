#include "daemon/process/loss_statuses.hpp"

#include <algorithm>
#include <tuple>

namespace tarn {

std::vector<LossStatus> loss_statuses(std::span<const Loss> losses,
                                      const std::function<std::string(VolumeId)>& name_of_volume,
                                      const std::function<std::string(HostId)>& name_of_host) {
    std::vector<LossStatus> statuses;
    for (const Loss& loss : losses) {
        const bool of_any_volume = loss.page_count == 0 || loss.first.volume() != loss.last.volume();
        LossStatus status{.volume = of_any_volume ? "" : name_of_volume(loss.first.volume()),
                          .host = name_of_host(loss.host),
                          .generation = loss.generation,
                          .page_count = of_any_volume ? 0 : loss.page_count,
                          .first_page = of_any_volume ? 0 : loss.first.number(),
                          .last_page = of_any_volume ? 0 : loss.last.number(),
                          .at_ns = loss.at_ns};
        const auto same = std::ranges::find_if(statuses, [&](const LossStatus& each) {
            return each.generation == status.generation && each.host == status.host && each.volume == status.volume;
        });
        if (same == statuses.end()) {
            statuses.push_back(std::move(status));
            continue;
        }
        same->page_count += status.page_count;
        same->last_page = std::max(same->last_page, status.last_page);
        same->at_ns = std::max(same->at_ns, status.at_ns);
    }
    std::ranges::sort(statuses, {}, [](const LossStatus& each) { return std::tuple(each.generation, each.volume); });
    return statuses;
}

}  // namespace tarn
