// HomeStart: from the start of this process until its home serves: what hosts report, what may be lost, and then every
// stripe hears that it has recovered. When that may be is membership's rule (Recovery).
#pragma once

#include <vector>

#include "coherence/executor/stripes.hpp"
#include "coherence/flush/flusher.hpp"
#include "coherence/home_store/local_home_store.hpp"
#include "coherence/protocol/loss_ranges.hpp"

namespace tarn {

class HomeStart {
  public:
    struct Parts {
        Membership& membership;
        Store& store;
        FramePool& pool;
        Stripes& stripes;
        LocalHomeStore& home_store;
        Flusher& flusher;
    };
    explicit HomeStart(const Parts& parts) : parts_(parts) {}

    // A host has reported, or is waited for no more.
    void go_on();
    // Until this home knows who holds what. Errors: unavailable (it stops).
    Task<Result<>> ended();

  private:
    void recover();
    std::vector<PageId> held_pages();
    std::vector<PageId> pages_to_mark();
    Task<> record_and_go_on();
    Task<Result<>> record_possible_losses();

    const Parts parts_;
    protocol::LossRanges losses_before_;  // on record when this home began to serve
};

}  // namespace tarn
