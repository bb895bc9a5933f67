// Adoption: what this process takes from the arena of the one before it, which has died (D2).
//
// An adopted host does not resume, it reports: frames are what their records say, unserved until the page's home has
// confirmed them; requests, orders and questions under way are gone, and asked anew by whoever still waits. As a home
// it has its bytes, and learns from everybody's reports who holds what, as after any start.
#pragma once

#include <span>

#include "coherence/executor/stripes.hpp"
#include "coherence/home_store/home_frames.hpp"

namespace tarn {

class Adoption {
  public:
    struct Parts {
        const Membership& membership;
        Store& store;
        FramePool& pool;
        Pages& pages;
        Stripes& stripes;
        HeldFrames& held_frames;
        HomeFrames& home;
    };
    explicit Adoption(const Parts& parts) : parts_(parts) {}

    // Right after the store was opened: whether the arena is of the very process that had it before, and is ours from
    // now on. Errors: refused.
    static Result<> claim(Arena& arena, const Store& store);
    // Before anything is linked, and any other thread knows of the pages. How many pages were taken over.
    size_t run();

  private:
    void finish_staged_writes();
    void adopt_home_bytes();
    void adopt_holdings();
    void adopt_holding(PageId page, std::span<const FrameId> frames);

    const Parts parts_;
    size_t adopted_page_count_ = 0;
};

}  // namespace tarn
