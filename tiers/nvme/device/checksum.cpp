#include "tiers/nvme/device/checksum.hpp"

#include <isa-l/crc.h>

#include <array>

#include "utils/assert.hpp"

namespace tarn {

// ISA-L leaves the inversion at both ends to its caller.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed) {
    TARN_ASSERT(bytes.size() <= INT32_MAX);
    // ISA-L reads and takes a non-const pointer.
    auto* const start = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    return ~crc32_iscsi(start, static_cast<int>(bytes.size()), ~seed);
}

uint32_t crc32c_around(std::span<const std::byte> block, size_t field, uint32_t seed) {
    constexpr std::array<std::byte, sizeof(uint32_t)> zeros{};
    const uint32_t before = crc32c(block.first(field), seed);
    return crc32c(block.subspan(field + zeros.size()), crc32c(zeros, before));
}

uint32_t page_checksum(PageId page, Tenure tenure, std::span<const std::byte, page_size> bytes) {
    const std::array<uint64_t, 2> key = {page.value, tenure};
    return crc32c(bytes, crc32c(std::as_bytes(std::span(key))));
}

}  // namespace tarn
