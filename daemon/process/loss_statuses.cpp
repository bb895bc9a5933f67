#include "daemon/process/loss_statuses.hpp"

#include <algorithm>
#include <tuple>

#include "frontends/volumes/volume.hpp"

namespace tarn {

namespace {

// Far above any data; of its MiB, which is marked as a whole, it alone is a page of the volume.
constexpr uint64_t data_pages_max = volume_size_max / page_size;

LossStatus of_pages(const Loss& loss) {
    const bool has_attributes = loss.last == attribute_page_of(loss.last.volume());
    LossStatus status{.generation = loss.generation, .attributes = has_attributes, .at_ns = loss.at_ns};
    if (loss.first.number() >= data_pages_max) return status;
    status.page_count = loss.page_count - (has_attributes ? 1 : 0);
    status.first_page = loss.first.number();
    status.last_page = std::min(loss.last.number(), data_pages_max - 1);
    return status;
}

void add(LossStatus& sum, const LossStatus& more) {
    if (more.page_count != 0) {
        sum.first_page = sum.page_count == 0 ? more.first_page : std::min(sum.first_page, more.first_page);
        sum.last_page = std::max(sum.last_page, more.last_page);
        sum.page_count += more.page_count;
    }
    sum.attributes |= more.attributes;
    sum.at_ns = std::max(sum.at_ns, more.at_ns);
}

}  // namespace

std::vector<LossStatus> loss_statuses(std::span<const Loss> losses,
                                      const std::function<std::optional<std::string>(VolumeId)>& name_of_volume,
                                      const std::function<std::string(HostId)>& name_of_host) {
    std::vector<LossStatus> statuses;
    for (const Loss& loss : losses) {
        const bool of_any_volume = loss.page_count == 0 || loss.first.volume() != loss.last.volume();
        LossStatus status{.generation = loss.generation, .at_ns = loss.at_ns};
        if (!of_any_volume) {
            std::optional<std::string> name = name_of_volume(loss.first.volume());
            if (!name) continue;  // it was deleted
            status = of_pages(loss);
            if (status.page_count == 0 && !status.attributes) continue;  // nothing of the volume is there
            status.volume = *std::move(name);
        }
        status.host = name_of_host(loss.host);
        const auto same = std::ranges::find_if(statuses, [&](const LossStatus& each) {
            return each.generation == status.generation && each.host == status.host && each.volume == status.volume;
        });
        if (same == statuses.end())
            statuses.push_back(std::move(status));
        else
            add(*same, status);
    }
    std::ranges::sort(statuses, {}, [](const LossStatus& each) { return std::tuple(each.generation, each.volume); });
    return statuses;
}

}  // namespace tarn
