// CRC-32C (Castagnoli), the checksum of everything on the media. ISA-L picks the CPU's instruction for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tiers/page.hpp"

namespace tarn {

// Of "123456789" it is 0xE3069283. seed continues from the checksum of what came before.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed = 0);

// Of a block that has the checksum in it, at `field`, which counts as zero.
uint32_t crc32c_around(std::span<const std::byte> block, size_t field, uint32_t seed = 0);

// Of a page's id, tenure and bytes: the bytes of another page, or of another tenure, do not pass for it.
uint32_t page_checksum(PageId page, Tenure tenure, std::span<const std::byte, page_size> bytes);

}  // namespace tarn
