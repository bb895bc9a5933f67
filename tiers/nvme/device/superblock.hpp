// Superblock: what a store says about itself, and where its parts lie on the device.
//
//   0        superblock, first copy        all offsets and sizes are multiples of 4 KiB
//   64 KiB   losses, first copy            loss_list.hpp
//   128 KiB  marks, first places           piece_marks.hpp
//   512 KiB  superblock, second copy
//   576 KiB  losses, second copy
//   640 KiB  marks, second places
//   1 MiB    journal, a ring
//            slab table, first place       one block of 4 KiB per slab
//            slab table, second place
//   data     slabs of 1 MiB
//
// Both copies of a superblock are written one after the other, each made durable before the next: whichever survives
// says the same or is one generation older. Decoding treats the bytes as hostile.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tiers/page.hpp"
#include "utils/result.hpp"

namespace tarn {

class BlockDevice;

inline constexpr uint64_t slab_size = uint64_t{1} << 20;
inline constexpr uint64_t pages_per_slab = slab_size / page_size;
inline constexpr uint64_t slab_count_max = uint64_t{1} << 27;        // 128 TiB
inline constexpr uint64_t home_epoch_max = (uint64_t{1} << 24) - 1;  // the tenure has 24 bits for it
inline constexpr uint64_t journal_size_min = uint64_t{64} << 10;
inline constexpr uint64_t journal_size_max = uint64_t{1} << 30;
inline constexpr uint64_t data_alignment_max = uint64_t{64} << 20;
inline constexpr uint64_t journal_position_max = uint64_t{1} << 62;  // far from its end in any device's life
inline constexpr uint32_t store_format_version = 3;
inline constexpr uint32_t store_format_upgradable = 2;  // and no older one

using Uuid = std::array<uint8_t, 16>;

using HostName = std::array<char, 64>;  // and zeros behind it; all zeros: unknown
constexpr HostName host_name_of(std::string_view name) {
    HostName host_name{};
    std::ranges::copy(name.substr(0, host_name.size() - 1), host_name.begin());
    return host_name;
}
constexpr std::string_view text_of(const HostName& name) {
    return {name.data(), static_cast<size_t>(std::ranges::find(name, '\0') - name.begin())};
}

// Whose store it is. A cloned or foreign disk is refused by it.
struct StoreIdentity {
    Uuid cluster{};
    HostId host = 0;
    HostName host_name{};  // as when the store was made; of an expected one: of who asks
    bool operator==(const StoreIdentity&) const = default;
};

// What the layout follows from.
struct StoreGeometry {
    uint64_t slab_count = 0;
    uint64_t journal_size = 0;            // bytes
    uint64_t data_alignment = slab_size;  // of the first slab: 1 MiB, or the device's larger optimal I/O size
    bool operator==(const StoreGeometry&) const = default;

    // The largest store on so many bytes; no slabs when they are too few. journal_size 0: by the store's size.
    static StoreGeometry of_device(uint64_t size_bytes, uint64_t journal_size = 0, uint64_t data_alignment = slab_size);
};

// optimal_io_size: what the device prefers to be given at a time, bytes; 0: it does not say. Sizes that are no power of
// two (a stripe over five disks), or out of all proportion, align nothing.
constexpr uint64_t data_alignment_for(uint64_t optimal_io_size) {
    const bool counts = std::has_single_bit(optimal_io_size) && optimal_io_size <= data_alignment_max;
    return counts ? std::max(optimal_io_size, slab_size) : slab_size;
}

struct StoreLayout {
    static constexpr std::array<uint64_t, 2> superblock_offsets = {0, uint64_t{512} << 10};
    static constexpr uint64_t journal_offset = uint64_t{1} << 20;
    std::array<uint64_t, 2> table_offsets{};
    uint64_t data_offset = 0;
    uint64_t end = 0;

    static StoreLayout of(const StoreGeometry& geometry);
};

// How far a store has come, as its host tells the others, and as they remember it: a store that was copied back, or
// copied and started twice, is told from the one that they know.
struct StoreStanding {
    uint32_t epoch = 0;     // the home epoch; 0: nothing is known
    uint64_t nonce = 0;     // drawn when the process of that epoch opened the store
    uint64_t position = 0;  // the journal was durable up to there
    bool operator==(const StoreStanding&) const = default;
};

// What is kept of one of the last starts: its nonce, and where the journal ended that it found.
struct StoreStart {
    uint64_t nonce = 0;
    uint64_t position = 0;
    bool operator==(const StoreStart&) const = default;
};
inline constexpr size_t starts_max = 128;

struct Superblock {
    uint32_t version = store_format_version;  // as which it was read
    StoreIdentity identity;
    Uuid store{};  // drawn at format; all other checksums of the store start from it
    StoreGeometry geometry;
    uint64_t generation = 0;       // of this superblock: the higher of two copies is current
    uint64_t home_epoch = 0;       // grows at every start
    uint64_t used_epoch = 0;       // of the last start that came to use the store; 0: not told
    uint64_t loss_generation = 0;  // grows when accepted bytes were lost (D4)
    bool is_complete = false;      // at the end of the last process nothing was in memory alone
    bool has_marks = false;        // memory has newer bytes of marked pieces only (piece_marks.hpp); else of any
    // By host: one more than the last process of it that an operator declared dead; 0: none.
    std::array<uint32_t, hosts_max> forgotten{};
    // Where the journal begins: everything before it is in the slab table and the slabs, durably.
    uint64_t journal_tail = 0;
    uint32_t journal_tail_checksum = 0;  // of the batch before it
    // By home epoch, modulo starts_max.
    std::array<StoreStart, starts_max> starts{};
    // What this host remembers of the others' stores.
    std::array<StoreStanding, hosts_max> heard{};
    // The home epoch of a newer state of this store, which another host remembers; 0: none does.
    uint32_t outdone_by_epoch = 0;
    // An operator took an older store for good in that home epoch, and all of it is on the list of losses; what others
    // remember from before counts no more. 0: never.
    uint32_t accepted_epoch = 0;
    // The home epoch since which every process closed the store as complete; 0: not told.
    uint32_t intact_since = 0;
};

using BlockBytes = std::span<std::byte, page_size>;
using ConstBlockBytes = std::span<const std::byte, page_size>;

void encode_superblock(const Superblock& superblock, BlockBytes into, uint32_t version = store_format_version);
// oldest: the format of the oldest one to be read. Errors: not_found (no store at all), corrupt (a store's magic, and a
// wrong checksum or contents), unsupported (another format).
Result<Superblock> decode_superblock(ConstBlockBytes bytes, uint32_t oldest = store_format_version);
// The current one of two copies as decoded; the first error when neither is good.
Result<Superblock> choose_superblock(const Result<Superblock>& first, const Result<Superblock>& second);

// Both copies; one that cannot be read is a bad one. Errors: invalid (too small for a store), io.
using SuperblockCopies = std::array<Result<Superblock>, 2>;
Result<SuperblockCopies> read_superblocks(BlockDevice& device, uint32_t oldest = store_format_version);
// The current superblock of a device that is large enough for what it says. Errors: as of Store::open.
Result<Superblock> read_superblock(BlockDevice& device);
// The same bytes to two places, each made durable before the next: at any instant one of them is whole.
Result<> write_copies_now(BlockDevice& device, const std::array<uint64_t, 2>& offsets,
                          std::span<const std::byte> bytes);

}  // namespace tarn
