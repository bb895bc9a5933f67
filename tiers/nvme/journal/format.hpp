// The journal's batches and records as they lie on the device, and what makes a batch believable.
//
// A position counts the bytes ever written to the journal; it lies at position % size of the ring. Batches follow each
// other without gaps, each a multiple of 4 KiB: a header, then records, each followed by its payload. A batch is
// believed as a whole or not at all: that is what makes its records atomic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tiers/nvme/device/superblock.hpp"
#include "tiers/nvme/table/slab_table.hpp"
#include "tiers/page.hpp"

namespace tarn {

struct BatchHeader {
    static constexpr uint64_t magic_value = 0x6c6e726a6e726174;  // "tarnjrnl"

    uint64_t magic = magic_value;
    uint64_t position = 0;  // of this header
    uint64_t durable = 0;   // every batch before it was durable when this one was written
    uint32_t size_bytes = 0;
    uint32_t record_count = 0;
    uint32_t home_epoch = 0;  // of the process that wrote it
    uint32_t view_epoch = 0;
    uint32_t previous_checksum = 0;  // of the batch before: what an earlier crash left behind does not follow
    uint32_t checksum = 0;           // of the store's id and the whole batch with this field zero
    uint64_t reserved[2] = {};
};
static_assert(sizeof(BatchHeader) == 64);

enum class RecordKind : uint8_t {
    delta = 1,     // the payload has the dirty sectors of one page
    in_place = 2,  // `count` whole pages that lie in their places already; the payload has an InPlaceEntry for each
    clear = 3,     // `count` pages read as zeros from here on
};

struct JournalRecord {
    static constexpr uint8_t base_is_zeros = 1;  // delta: sectors that are not dirty are zeros, not what is in place
    static constexpr uint8_t keeps_space = 2;    // clear: the pages stay reserved
    static constexpr uint8_t releases = 4;       // clear: the slab is free from here on
    static constexpr uint8_t moved = 8;          // in place: the pages came from the journal, and were durable before

    RecordKind kind = RecordKind::delta;
    DirtyMask dirty = 0;
    uint8_t flags = 0;
    uint8_t reserved = 0;
    SlabIndex slab = 0;
    PageId page{};  // the first, of one slab
    Tenure tenure = 0;
    Tenure base_tenure = 0;  // what it applies to
    uint32_t sequence = 0;   // of the write within its tenure
    uint32_t checksum = 0;   // of the whole resulting page
    uint32_t base_checksum = 0;
    uint32_t count = 1;       // pages
    uint32_t group_left = 0;  // records of the same atomic group that follow
    uint32_t reserved_too = 0;
    uint64_t reserved_end = 0;

    // Of well-formed ones.
    uint64_t payload_size() const;
    // Fields within their ranges, whoever wrote them.
    bool makes_sense() const;
    bool operator==(const JournalRecord&) const = default;
};
static_assert(sizeof(JournalRecord) == 64);

struct InPlaceEntry {
    Tenure tenure = 0;
    uint32_t checksum = 0;
    uint32_t reserved = 0;
};
static_assert(sizeof(InPlaceEntry) == 16);

// Records and payloads start at multiples of this.
inline constexpr uint64_t journal_unit = 64;

// The most a batch may take on a ring of that size: a quarter, so that there is always one to free; and 256 whole pages
// of one atomic group fit into the largest.
constexpr uint64_t batch_size_max(uint64_t journal_size) {
    constexpr uint64_t most = uint64_t{1280} << 10;
    const uint64_t quarter = journal_size / 4 / page_size * page_size;
    return quarter < most ? quarter : most;
}

// bytes: the whole batch, with its header; the checksum field in it counts as zero. Continues in rest.
uint32_t batch_checksum(const Uuid& store, std::span<const std::byte> bytes, std::span<const std::byte> rest = {});

// Turns back the one bit of a damaged batch that explains why it does not have this checksum, which then is in its
// header, too. Returns where that was; nothing when no single bit does, and then the bytes are as they were.
std::optional<size_t> mend_batch(const Uuid& store, std::span<std::byte> bytes, uint32_t checksum);

}  // namespace tarn
