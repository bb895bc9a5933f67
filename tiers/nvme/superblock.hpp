// Superblock: what a store says about itself, and where its parts lie on the device.
//
//   0        superblock, first copy        all offsets and sizes are multiples of 4 KiB
//   512 KiB  superblock, second copy
//   1 MiB    slab table, first copy        one 64-byte entry per slab
//            slab table, second copy
//   data     slabs of 1 MiB, aligned to 1 MiB
//
// Both copies of a superblock are written one after the other, each made durable before the next: whichever survives
// says the same or is one generation older. Decoding treats the bytes as hostile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tiers/page.hpp"
#include "utils/result.hpp"

namespace tarn {

inline constexpr uint64_t slab_size = uint64_t{1} << 20;
inline constexpr uint64_t pages_per_slab = slab_size / page_size;
inline constexpr uint64_t slab_count_max = uint64_t{1} << 27;  // 128 TiB; ~11 GiB of tables in memory
inline constexpr uint64_t slab_entry_size = 64;
inline constexpr uint64_t slab_entries_per_block = page_size / slab_entry_size;
inline constexpr uint64_t home_epoch_max = (uint64_t{1} << 24) - 1;  // the tenure has 24 bits for it

using Uuid = std::array<uint8_t, 16>;

// Whose store it is. A cloned or foreign disk is refused by it.
struct StoreIdentity {
    Uuid cluster{};
    HostId host = 0;
    bool operator==(const StoreIdentity&) const = default;
};

struct Superblock {
    StoreIdentity identity;
    Uuid store{};  // drawn at format; the checksums of the slab table start from it
    uint64_t slab_count = 0;
    uint64_t generation = 0;       // of this superblock: the higher of two copies is current
    uint64_t home_epoch = 0;       // grows at every start
    uint64_t loss_generation = 0;  // grows when accepted bytes were lost (D4)
};

struct StoreLayout {
    static constexpr std::array<uint64_t, 2> superblock_offsets = {0, uint64_t{512} << 10};
    std::array<uint64_t, 2> table_offsets{};
    uint64_t table_block_count = 0;
    uint64_t data_offset = 0;
    uint64_t end = 0;

    static StoreLayout of(uint64_t slab_count);
    // How many slabs fit a device of that size; 0 when it is too small.
    static uint64_t slab_count_for(uint64_t size_bytes);
};

using BlockBytes = std::span<std::byte, page_size>;
using ConstBlockBytes = std::span<const std::byte, page_size>;

void encode_superblock(const Superblock& superblock, BlockBytes into);
// Errors: not_found (no store at all), corrupt (a store's magic, and a wrong checksum or contents), unsupported
// (a version this program does not know).
Result<Superblock> decode_superblock(ConstBlockBytes bytes);
// The current one of two copies as decoded; the first error when neither is good.
Result<Superblock> choose_superblock(const Result<Superblock>& first, const Result<Superblock>& second);

}  // namespace tarn
