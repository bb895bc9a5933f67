// Which pages of a volume are stored, asked of every home of the volume.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coherence/cache/cache.hpp"

namespace tarn {

struct StoredRun {
    uint64_t first_page;
    uint64_t page_count;
};

struct StoredRuns {
    std::vector<StoredRun> runs;  // ascending, none overlap
    uint64_t end_page = 0;        // the answer covers the range up to here, and at least one page
};

// Every page of the range that may not read as zeros. Errors: unavailable when a home is away.
Task<Result<StoredRuns>> stored_runs(Cache& cache, VolumeId volume, uint64_t first_page, uint64_t page_count);

// CallKind::stored_runs, by which one host asks another; refuses what it cannot parse.
Result<std::string> answer_stored_runs(Cache& cache, const std::string& request);

}  // namespace tarn
