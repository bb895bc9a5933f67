#include "tiers/nvme/journal_format.hpp"

#include <array>
#include <bit>

#include "tiers/nvme/checksum.hpp"
#include "utils/assert.hpp"

namespace tarn {

uint64_t JournalRecord::payload_size() const {
    switch (kind) {
        case RecordKind::delta: return static_cast<uint64_t>(std::popcount(dirty)) * sector_size;
        case RecordKind::in_place:
            return (count * sizeof(InPlaceEntry) + journal_unit - 1) / journal_unit * journal_unit;
        case RecordKind::clear: return 0;
    }
    return 0;
}

bool JournalRecord::makes_sense() const {
    if (count == 0 || count > pages_per_slab || page.number() % pages_per_slab + count > pages_per_slab) return false;
    switch (kind) {
        case RecordKind::delta:
            // With nothing beneath, or with something: never both, and never nothing at all.
            return count == 1 && dirty != 0 && (flags & ~base_is_zeros) == 0;
        case RecordKind::in_place: return dirty == 0 && (flags & ~moved) == 0;
        case RecordKind::clear:
            return dirty == 0 && (flags & ~(keeps_space | releases)) == 0 && flags != (keeps_space | releases);
    }
    return false;
}

uint32_t batch_checksum(const Uuid& store, std::span<const std::byte> bytes, std::span<const std::byte> rest) {
    TARN_ASSERT(bytes.size() >= sizeof(BatchHeader));
    constexpr std::array<std::byte, sizeof(uint32_t)> zeros{};
    constexpr size_t at = offsetof(BatchHeader, checksum);
    uint32_t sum = crc32c(std::as_bytes(std::span(store)));
    sum = crc32c(bytes.first(at), sum);
    sum = crc32c(zeros, sum);
    sum = crc32c(bytes.subspan(at + zeros.size()), sum);
    return crc32c(rest, sum);
}

}  // namespace tarn
