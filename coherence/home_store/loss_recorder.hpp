// LossRecorder: records durably, and logs, what the protocol found lost, before the page is served again.
//
// A host that dies with many dirty pages loses them all at once: one write of the store records all of them. If it
// fails it is tried again. Until then the arena says that losses lack their record
// (Membership::begin_unrecorded_losses): if this process ends before, the next one must assume the worst.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "coherence/executor/host_parts.hpp"
#include "coherence/executor/stripes.hpp"
#include "coherence/fabric/peers.hpp"
#include "coherence/home_store/waiting_flushes.hpp"
#include "coherence/membership/membership.hpp"
#include "tiers/nvme/table/loss_list.hpp"
#include "tiers/page.hpp"
#include "utils/task.hpp"

namespace tarn {

class LossRecorder {
  public:
    struct Parts : HostParts {
        WaitingFlushes& flushes;
    };
    explicit LossRecorder(const Parts& parts) : parts_(parts) {}

    // These pages may have lost writes with the memory of `host`. Outside any latch, on a shard.
    void add(std::vector<PageId> pages, HostId host);

    // How many pages were recorded since this process started.
    uint64_t page_count() const { return page_count_.load(std::memory_order_relaxed); }

  private:
    struct Lost {
        PageId page;
        HostId host;
    };
    Task<> record();
    // Runs of neighbours that were lost with one host's memory. Sorts the pages.
    static std::vector<Loss> runs_of(std::vector<Lost>& lost);
    void say(std::span<const Lost> lost, uint32_t generation);

    const Parts parts_;
    std::mutex mutex_;  // never held across a wait
    std::vector<Lost> pending_;
    bool running_ = false;
    Recovery::Moment unrecorded_since_ = 0;
    bool failed_ = false;  // the last attempt to record
    std::atomic<uint64_t> page_count_{0};
};

}  // namespace tarn
