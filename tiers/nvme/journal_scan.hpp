// Reading the journal back: which batches are to be believed, where it ends, and whether that is where it ended.
//
// The end is the first batch that is not whole. A batch beyond it that was written when the missing one had been
// durable already proves that the media lost it: then nothing is believed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "tiers/nvme/block_device.hpp"
#include "tiers/nvme/journal.hpp"

namespace tarn {

// One record of a batch that was believed.
struct FoundRecord {
    JournalRecord record;
    uint64_t payload = 0;  // its position
    uint64_t end = 0;
    std::span<const std::byte> bytes;  // of the payload; only during the visit
};

struct JournalScan {
    std::vector<Journal::Boundary> boundaries;  // the ends of the batches, in order
    // What lies before it was durable before the writer stopped; of the rest, writes without a record of their own may
    // be missing.
    uint64_t closed = 0;
    uint64_t end = 0;
    uint64_t record_count = 0;
};

// Errors: io, corrupt (a hole, or records that make no sense), and what visit returns.
Result<JournalScan> scan_journal(BlockDevice& device, const Superblock& superblock,
                                 const std::function<Result<>(const FoundRecord&)>& visit);

}  // namespace tarn
