#include "coherence/protocol/loss_ranges.hpp"

#include <algorithm>
#include <iterator>

namespace tarn::protocol {

LossRanges::LossRanges(std::span<const LossRange> ranges) {
    std::vector<uint64_t> borders;
    for (const LossRange& range : ranges) {
        borders.push_back(range.first.value);
        if (range.last.value != UINT64_MAX) borders.push_back(range.last.value + 1);
    }
    std::ranges::sort(borders);
    borders.erase(std::ranges::unique(borders).begin(), borders.end());
    for (const uint64_t border : borders) {
        uint32_t generation = 0;
        for (const LossRange& range : ranges)
            if (range.first.value <= border && border <= range.last.value)
                generation = std::max(generation, range.generation);
        steps_.push_back({.first = border, .generation = generation});
    }
}

uint32_t LossRanges::generation_of(PageId page) const {
    const auto after = std::ranges::upper_bound(steps_, page.value, {}, &Step::first);
    return after == steps_.begin() ? 0 : std::prev(after)->generation;
}

std::vector<LossRange> without(std::span<const LossRange> ranges, std::vector<PageId> held) {
    std::ranges::sort(held);
    std::vector<LossRange> left;
    auto page = held.begin();
    for (const LossRange& range : ranges) {
        page = std::lower_bound(page, held.end(), range.first);
        uint64_t next = range.first.value;
        for (; page != held.end() && *page <= range.last; ++page) {
            if (page->value > next) left.push_back({.first = {next}, .last = {page->value - 1}});
            next = page->value + 1;
        }
        if (next <= range.last.value) left.push_back({.first = {next}, .last = range.last});
    }
    return left;
}

}  // namespace tarn::protocol
