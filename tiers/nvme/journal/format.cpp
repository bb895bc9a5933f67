#include "tiers/nvme/journal/format.hpp"

#include <array>
#include <bit>
#include <cstring>

#include "tiers/nvme/device/checksum.hpp"
#include "utils/assert.hpp"

namespace tarn {

uint64_t JournalRecord::payload_size() const {
    switch (kind) {
        case RecordKind::delta: return static_cast<uint64_t>(std::popcount(dirty)) * sector_size;
        case RecordKind::in_place: return round_up(count * sizeof(InPlaceEntry), journal_unit);
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

namespace {

// What a flipped bit of the last byte does to the checksum, by the byte's difference; and of a byte further ahead, once
// for each byte between.
constexpr std::array<uint32_t, 256> make_differences() {
    constexpr uint32_t polynomial = 0x82f63b78;
    std::array<uint32_t, 256> differences{};
    for (uint32_t i = 0; i < differences.size(); ++i) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? polynomial : 0);
        differences[i] = value;
    }
    return differences;
}
constexpr std::array<uint32_t, 256> differences = make_differences();

}  // namespace

std::optional<size_t> mend_batch(const Uuid& store, std::span<std::byte> bytes, uint32_t checksum) {
    constexpr size_t field = offsetof(BatchHeader, checksum);
    uint32_t stored = 0;
    std::memcpy(&stored, bytes.data() + field, sizeof stored);
    const uint32_t wanted = batch_checksum(store, bytes) ^ checksum;
    if (wanted == 0) {
        // The bytes are good, so it is the checksum beside them that is not.
        if (std::popcount(stored ^ checksum) != 1) return std::nullopt;
        std::memcpy(bytes.data() + field, &checksum, sizeof checksum);
        return field;
    }
    if (stored != checksum) return std::nullopt;
    std::array<uint32_t, 8> of_bits{};
    for (unsigned bit = 0; bit < 8; ++bit) of_bits[bit] = differences[1u << bit];
    for (size_t at = bytes.size(); at-- > 0;) {
        const bool counts = at < field || at >= field + sizeof checksum;
        for (unsigned bit = 0; bit < 8; ++bit) {
            if (counts && of_bits[bit] == wanted) {
                bytes[at] ^= static_cast<std::byte>(1u << bit);
                return at;
            }
            of_bits[bit] = of_bits[bit] >> 8 ^ differences[of_bits[bit] & 0xff];
        }
    }
    return std::nullopt;
}

uint32_t batch_checksum(const Uuid& store, std::span<const std::byte> bytes, std::span<const std::byte> rest) {
    TARN_ASSERT(bytes.size() >= sizeof(BatchHeader));
    const uint32_t of_store = crc32c(std::as_bytes(std::span(store)));
    return crc32c(rest, crc32c_around(bytes, offsetof(BatchHeader, checksum), of_store));
}

}  // namespace tarn
