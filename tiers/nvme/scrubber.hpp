// Scrubber: reads every stored page of a volume, or of the whole store, and checks it, at a bounded rate, beside the
// work of the day. What is bad is counted and in the log; nothing is repaired.
//
// One pass at a time. Belongs to one loop.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tiers/nvme/store.hpp"
#include "utils/loop.hpp"

namespace tarn {

class Scrubber {
  public:
    struct Progress {
        std::optional<VolumeId> volume;  // none: all of them
        bool running = false;
        bool cancelled = false;
        uint64_t pages_total = 0;  // when it began
        uint64_t pages_checked = 0;
        uint64_t bad_page_count = 0;
        std::vector<PageId> bad_pages;  // the first of them
        uint64_t passes = 0;            // that came to their end, since the start
    };

    Scrubber(Store& store, Loop& loop) : store_(store), loop_(loop) {}

    // Bytes per second; 0: as fast as the device reads. Errors: busy (a pass is under way).
    Result<> start(std::optional<VolumeId> volume, uint64_t rate_bytes);
    void cancel();
    // Ends the pass under way; the last call.
    Task<> close();
    const Progress& progress() const { return progress_; }

  private:
    Task<> run(std::optional<VolumeId> volume, uint64_t rate_bytes);
    Task<> check(VolumeId volume, PageRun run, uint64_t rate_bytes);

    Store& store_;
    Loop& loop_;
    std::optional<Timer> pause_;  // of the pass under way
    Gate gate_;
    Progress progress_;
    uint64_t began_ns_ = 0;
};

}  // namespace tarn
