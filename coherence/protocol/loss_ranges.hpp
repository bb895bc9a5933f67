// LossRanges: in which loss generation a page last lost writes, by what was on record when its home began to serve.
//
// What is on record is a bounded superset: ranges of pages, which may overlap. Pure, and never changed once made.
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
    struct Step {  // from this page on, to that of the next step
        uint64_t first;
        uint32_t generation;
    };
    std::vector<Step> steps_;  // by `first`
};

// Of these ranges, which lie apart and in order, all but the held pages: what a home that lost its memory must take for
// lost, when these are the pages that were marked, and those that its holders have reported. No page has the highest
// id.
std::vector<LossRange> without(std::span<const LossRange> ranges, std::vector<PageId> held);

}  // namespace tarn::protocol
