// LossRanges: the loss generation in which a page last lost writes, by the record when its home began to serve.
//
// The record is a bounded superset: ranges of pages, which may overlap. Pure and immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tiers/page.hpp"

namespace tarn::protocol {

struct LossRange {
    PageId first;
    PageId last;
    uint32_t generation = 0;
};

class LossRanges {
  public:
    LossRanges() = default;
    explicit LossRanges(std::span<const LossRange> ranges);

    // 0: none.
    uint32_t generation_of(PageId page) const;

  private:
    struct Step {  // from this page to before that of the next step
        uint64_t first;
        uint32_t generation;
    };
    std::vector<Step> steps_;  // by `first`
};

// These ranges, which are disjoint and sorted, without the held pages: with the marked pages as ranges, and those that
// holders reported as held, what a home that lost its memory must count as lost. No page has the highest id.
std::vector<LossRange> without(std::span<const LossRange> ranges, std::vector<PageId> held);

}  // namespace tarn::protocol
