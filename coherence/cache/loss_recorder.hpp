// LossRecorder: what the protocol found lost is on record, durably, before the page is served again; and it is said.
//
// A host that dies with many dirty pages loses them all at once: one write of the store is for all of them.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "tiers/page.hpp"
#include "utils/task.hpp"

namespace tarn {

class Cache;

// One volume's part of one loss, as the home of these pages has it.
struct LossRecord {
    VolumeId volume = 0;
    HostId host = no_host;    // whose memory is gone
    uint32_t generation = 0;  // of this home's losses
    uint64_t page_count = 0;
    uint64_t first_page = 0;  // all of them lie from here
    uint64_t last_page = 0;   // to here
    int64_t at_ns = 0;        // since the Unix epoch
};

class LossRecorder {
  public:
    explicit LossRecorder(Cache& cache) : cache_(cache) {}

    // These pages may have lost writes with the memory of `host`. Outside of any latch, on a shard.
    void add(std::vector<PageId> pages, HostId host);

    // Since this process started, the newest last; the oldest are forgotten first.
    std::vector<LossRecord> records() const;
    uint64_t page_count() const;

  private:
    static constexpr size_t records_max = 256;

    struct Lost {
        PageId page;
        HostId host;
    };
    Task<> record();
    void note(std::vector<Lost> lost, uint32_t generation);

    Cache& cache_;
    mutable std::mutex mutex_;  // never held across a wait
    std::vector<Lost> pending_;
    bool running_ = false;
    std::vector<LossRecord> records_;
    uint64_t page_count_ = 0;
};

}  // namespace tarn
