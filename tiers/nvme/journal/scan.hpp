// Reading the journal back: which batches are to be believed, where it ends, and whether that is where it ended.
//
// The end is the first batch that is not whole. A batch beyond it that was written when the missing one had been
// durable already proves that the media lost it: then nothing is believed, unless somebody salvages what can be.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "tiers/nvme/device/block_device.hpp"
#include "tiers/nvme/journal/journal.hpp"

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

// Of a delta that needs nothing beneath it: the checksum that its page has. scratch: a page.
std::optional<uint32_t> checksum_of_whole_page(const FoundRecord& found, std::span<std::byte> scratch);

// The records of bytes that should be a batch, whatever its checksum says. Errors: corrupt, what visit returns.
Result<> visit_damaged_batch(std::span<const std::byte> bytes,
                             const std::function<Result<>(const FoundRecord&)>& visit);

// A part of the journal that had been durable and is damaged: positions.
struct JournalHole {
    uint64_t from = 0;
    uint64_t to = 0;  // where the next batch is that can be believed
};

// What is told of a scan that salvages: one flipped bit of a batch is found by its checksum and turned back; what is
// damaged worse is passed over, and the records beyond it are visited.
class JournalSalvage {
  public:
    // bytes: of the hole, as they are, or of its beginning when it is longer than any batch. previous: the checksum of
    // the batch before.
    virtual Result<> on_hole(const JournalHole& hole, uint32_t previous, std::span<const std::byte> bytes) = 0;
    uint64_t bits_mended = 0;

  protected:
    ~JournalSalvage() = default;
};

// Errors: io, corrupt (a hole, unless it is salvaged; or records that make no sense), and what visit returns.
Result<JournalScan> scan_journal(BlockDevice& device, const Superblock& superblock,
                                 const std::function<Result<>(const FoundRecord&)>& visit,
                                 JournalSalvage* salvage = nullptr);

}  // namespace tarn
