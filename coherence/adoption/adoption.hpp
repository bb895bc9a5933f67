// Adoption: takes over from the arena what the previous process, which has died, had in memory (D2).
//
// An adopted host does not resume, it reports: frames are what their records say, and are not served until the page's
// home has confirmed them. Requests, orders and calls under way are gone; hosts that still wait ask again. As a home it
// has its bytes, and learns from everybody's reports who holds what, as after any start.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "coherence/executor/host_parts.hpp"
#include "coherence/home_store/home_frames.hpp"

namespace tarn {

class Adoption {
  public:
    struct Parts : HostParts {
        HeldFrames& held_frames;
        HomeFrames& home;
    };
    explicit Adoption(const Parts& parts) : parts_(parts) {}

    // Claims the arena for this process if it is from the last process that had the store open. Call it right after the
    // store was opened. Errors: refused.
    static Result<> claim(Arena& arena, const Store& store);
    // Returns how many pages were taken over. Call it before any link comes up and any other thread knows of the pages.
    size_t run();
    // Of the writes under way that it finished (write_receipts.hpp).
    std::vector<uint64_t> take_receipts() { return std::move(receipts_); }

  private:
    void finish_staged_writes();
    void adopt_home_bytes();
    void adopt_holdings();
    void adopt_holding(PageId page, std::span<const FrameId> frames);

    const Parts parts_;
    size_t adopted_page_count_ = 0;
    std::vector<uint64_t> receipts_;
};

}  // namespace tarn
