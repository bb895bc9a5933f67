// HomeStart: runs from the start of this process until its home serves. It collects the hosts' reports, records what
// may be lost, then tells every stripe that it has recovered. Recovery has the rule when that may be.
#pragma once

#include <mutex>
#include <vector>

#include "coherence/executor/host_parts.hpp"
#include "coherence/flush/flusher.hpp"
#include "coherence/home_store/local_home_store.hpp"
#include "coherence/protocol/loss_ranges.hpp"

namespace tarn {

class HomeStart {
  public:
    struct Parts : HostParts {
        LocalHomeStore& home_store;
        Flusher& flusher;
    };
    explicit HomeStart(const Parts& parts) : parts_(parts) {}

    // Call it when a host has reported, or need not report any more.
    void go_on();
    // While it lives, this home does not begin to serve. For who tells all stripes what changes who holds what: a
    // stripe that has recovered records what is lost, and one that has not leaves that to the home's own record.
    [[nodiscard]] std::unique_lock<std::mutex> hold_off() { return std::unique_lock(begins_to_serve_); }
    // Waits until this home knows who holds what. Errors: unavailable (it stops).
    Task<Result<>> ended();

  private:
    void tell_stripes();
    std::vector<PageId> held_pages();
    std::vector<PageId> pages_to_mark();
    Task<> record_and_go_on();
    Task<Result<>> record_possible_losses();

    const Parts parts_;
    std::mutex begins_to_serve_;
    protocol::LossRanges losses_before_;  // on record when this home began to serve
};

}  // namespace tarn
