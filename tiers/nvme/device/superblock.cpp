#include "tiers/nvme/device/superblock.hpp"

#include <cstring>

#include "tiers/nvme/device/block_device.hpp"
#include "tiers/nvme/device/checksum.hpp"
#include "utils/mapping.hpp"

namespace tarn {

namespace {

constexpr std::array<char, 8> magic = {'t', 'a', 'r', 'n', 's', 't', 'o', 'r'};

static_assert(std::endian::native == std::endian::little, "the media are little-endian, and so are we");

// The fields up to the checksum keep their places in every version.
struct Header {
    std::array<char, 8> magic;
    uint32_t version;
    uint32_t page_size_bytes;
    uint64_t slab_size_bytes;
    Uuid cluster;
    Uuid store;
    uint64_t host;
    uint64_t slab_count;
    uint64_t generation;
    uint64_t home_epoch;
    uint64_t loss_generation;
    uint32_t flags;     // zero in stores of format 2
    uint32_t checksum;  // of the whole block with this field zero
    uint64_t journal_size_bytes;
    uint64_t data_alignment_bytes;
    uint64_t journal_tail;
    uint32_t journal_tail_checksum;
    uint32_t used_epoch;
    std::array<uint32_t, hosts_max + 1> forgotten;  // zeros in stores that are older than this field, and what follows
    uint32_t outdone_by_epoch;
    uint32_t accepted_epoch;
    std::array<StoreStart, starts_max> starts;
    std::array<uint64_t, hosts_max + 1> heard_nonces;
    std::array<uint64_t, hosts_max + 1> heard_positions;
    std::array<uint32_t, hosts_max + 1> heard_epochs;
    HostName host_name;
    uint32_t intact_since;
};
static_assert(offsetof(Header, journal_size_bytes) == 104 && offsetof(Header, forgotten) == 136);
static_assert(offsetof(Header, starts) == 400 && offsetof(Header, heard_epochs) == 3472 &&
              offsetof(Header, host_name) == 3728 && offsetof(Header, intact_since) == 3792);
static_assert(sizeof(Header) <= page_size);
constexpr size_t checksum_offset = offsetof(Header, checksum);
constexpr uint32_t flag_complete = 1;
constexpr uint32_t flag_marks = 2;

// Copies what lies in a block and in memory, in one direction or the other.
void copy_fields(auto& header, auto& superblock, auto copy) {
    copy(header.cluster, superblock.identity.cluster);
    copy(header.store, superblock.store);
    copy(header.host, superblock.identity.host);
    copy(header.slab_count, superblock.geometry.slab_count);
    copy(header.generation, superblock.generation);
    copy(header.home_epoch, superblock.home_epoch);
    copy(header.loss_generation, superblock.loss_generation);
    copy(header.journal_size_bytes, superblock.geometry.journal_size);
    copy(header.data_alignment_bytes, superblock.geometry.data_alignment);
    copy(header.journal_tail, superblock.journal_tail);
    copy(header.journal_tail_checksum, superblock.journal_tail_checksum);
    copy(header.used_epoch, superblock.used_epoch);
    copy(header.outdone_by_epoch, superblock.outdone_by_epoch);
    copy(header.accepted_epoch, superblock.accepted_epoch);
    copy(header.intact_since, superblock.intact_since);
    copy(header.starts, superblock.starts);
    copy(header.host_name, superblock.identity.host_name);
    for (HostId host = 0; host < hosts_max; ++host) {
        copy(header.forgotten[host], superblock.forgotten[host]);
        copy(header.heard_nonces[host], superblock.heard[host].nonce);
        copy(header.heard_positions[host], superblock.heard[host].position);
        copy(header.heard_epochs[host], superblock.heard[host].epoch);
    }
}

bool makes_sense(const StoreGeometry& geometry) {
    return geometry.slab_count > 0 && geometry.slab_count <= slab_count_max &&
           geometry.journal_size >= journal_size_min && geometry.journal_size <= journal_size_max &&
           geometry.journal_size % journal_size_min == 0 && std::has_single_bit(geometry.data_alignment) &&
           geometry.data_alignment >= slab_size && geometry.data_alignment <= data_alignment_max;
}

// A 32nd of the store, so that bursts fit, and no more than the books have room for (journaled_pages_max_of); an eighth
// of a small one.
uint64_t default_journal_size(uint64_t size_bytes) {
    const uint64_t floor = std::min(uint64_t{8} << 20, size_bytes / 8);
    const uint64_t size = std::clamp(size_bytes / 32, floor, std::max(floor, journal_size_max));
    return std::max(size / journal_size_min * journal_size_min, journal_size_min);
}

}  // namespace

StoreLayout StoreLayout::of(const StoreGeometry& geometry) {
    StoreLayout layout;
    layout.table_offsets[0] = journal_offset + geometry.journal_size;
    layout.table_offsets[1] = layout.table_offsets[0] + geometry.slab_count * page_size;
    layout.data_offset = round_up(layout.table_offsets[1] + geometry.slab_count * page_size, geometry.data_alignment);
    layout.end = layout.data_offset + geometry.slab_count * slab_size;
    return layout;
}

StoreGeometry StoreGeometry::of_device(uint64_t size_bytes, uint64_t journal_size, uint64_t data_alignment) {
    StoreGeometry geometry{.slab_count = std::min(size_bytes / slab_size, slab_count_max),
                           .journal_size = journal_size ? journal_size : default_journal_size(size_bytes),
                           .data_alignment = data_alignment};
    while (geometry.slab_count > 0 && StoreLayout::of(geometry).end > size_bytes) {
        const uint64_t excess = (StoreLayout::of(geometry).end - size_bytes + slab_size - 1) / slab_size;
        // Fewer slabs also shrink the table, so the whole excess would be too much.
        const uint64_t slabs = std::max<uint64_t>(1, excess * slab_size / (slab_size + 2 * page_size));
        geometry.slab_count -= std::min(geometry.slab_count, slabs);
    }
    return geometry;
}

void encode_superblock(const Superblock& superblock, BlockBytes into, uint32_t version) {
    std::ranges::fill(into, std::byte{0});
    Header header{.magic = magic,
                  .version = version,
                  .page_size_bytes = page_size,
                  .slab_size_bytes = slab_size,
                  .flags = (superblock.is_complete ? flag_complete : 0) | (superblock.has_marks ? flag_marks : 0)};
    copy_fields(header, superblock, []<class T>(T& in_block, const auto& value) { in_block = static_cast<T>(value); });
    std::memcpy(into.data(), &header, sizeof header);
    const uint32_t checksum = crc32c_around(into, checksum_offset);
    std::memcpy(into.data() + checksum_offset, &checksum, sizeof checksum);
}

Result<Superblock> decode_superblock(ConstBlockBytes bytes, uint32_t oldest) {
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.magic != magic) return fail(Errc::not_found, 0, "store.superblock: not a tarn store");
    // Before the version: another format keeps the place of the checksum, so that this tells rot from progress.
    if (header.checksum != crc32c_around(bytes, checksum_offset))
        return fail(Errc::corrupt, 0, "store.superblock: wrong checksum");
    if (header.version > store_format_version)
        return fail(Errc::unsupported, 0, "store.superblock: of a newer format; a newer tarn reads it");
    if (header.version < store_format_upgradable)
        return fail(Errc::unsupported, 0,
                    "store.superblock: of format 1, which no release had: there is no upgrade; copy its volumes with "
                    "the tarn that made it");
    if (header.version < oldest)
        return fail(
            Errc::unsupported, 0,
            "store.superblock: of format 2, which this tarn writes no more; start tarnd with --upgrade to bring "
            "it to format 3 in place, after which no older tarn reads it");
    if (header.page_size_bytes != page_size || header.slab_size_bytes != slab_size)
        return fail(Errc::corrupt, 0, "store.superblock: wrong page or slab size");
    if (header.host >= hosts_max) return fail(Errc::corrupt, 0, "store.superblock: host id out of range");
    Superblock superblock{.version = header.version,
                          .is_complete = (header.flags & flag_complete) != 0,
                          .has_marks = (header.flags & flag_marks) != 0};
    copy_fields(header, superblock, []<class T>(const auto& in_block, T& value) { value = static_cast<T>(in_block); });
    if (!makes_sense(superblock.geometry)) return fail(Errc::corrupt, 0, "store.superblock: sizes out of range");
    if (header.home_epoch > home_epoch_max) return fail(Errc::corrupt, 0, "store.superblock: home epoch out of range");
    if (header.outdone_by_epoch > home_epoch_max || header.accepted_epoch > header.home_epoch ||
        header.used_epoch > header.home_epoch || header.intact_since > header.home_epoch)
        return fail(Errc::corrupt, 0, "store.superblock: another home epoch out of range");
    if (header.generation == UINT64_MAX || header.loss_generation == UINT64_MAX)
        return fail(Errc::corrupt, 0, "store.superblock: generation out of range");
    if (header.journal_tail % page_size != 0 || header.journal_tail > journal_position_max)
        return fail(Errc::corrupt, 0, "store.superblock: the journal begins nowhere");
    return superblock;
}

Result<Superblock> choose_superblock(const Result<Superblock>& first, const Result<Superblock>& second) {
    if (first && second) {
        // The number of its host may change from one generation to the next (store_open.cpp).
        if (first->store != second->store || first->geometry != second->geometry ||
            first->identity.cluster != second->identity.cluster ||
            (first->generation == second->generation && first->identity != second->identity))
            return fail(Errc::corrupt, 0, "store.superblock: the two copies are of different stores");
        return first->generation >= second->generation ? first : second;
    }
    // One copy of another version: an upgrade that was cut short, and not ours to go back on.
    if (!first && first.error().code == Errc::unsupported) return first;
    if (!second && second.error().code == Errc::unsupported) return second;
    if (first) return first;
    if (second) return second;
    // Something that was a store once says more than "not a store".
    return first.error().code == Errc::not_found ? second : first;
}

Result<SuperblockCopies> read_superblocks(BlockDevice& device, uint32_t oldest) {
    if (device.size_bytes() < StoreLayout::journal_offset)
        return fail(Errc::invalid, 0, "store.open: too small for a store");
    TRY(const Mapping scratch, Mapping::create(page_size));
    const BlockBytes block(scratch.bytes());
    SuperblockCopies copies;
    for (size_t i = 0; i < copies.size(); ++i) {
        const Result<> read = device.read_now(block, StoreLayout::superblock_offsets[i]);
        copies[i] = read ? decode_superblock(block, oldest) : fail(read.error());
    }
    return copies;
}

Result<Superblock> read_superblock(BlockDevice& device) {
    TRY(const SuperblockCopies copies, read_superblocks(device));
    TRY(const Superblock superblock, choose_superblock(copies[0], copies[1]));
    if (StoreLayout::of(superblock.geometry).end > device.size_bytes())
        return fail(Errc::corrupt, 0, "store.open: shorter than its superblock says");
    return superblock;
}

Result<> write_copies_now(BlockDevice& device, const std::array<uint64_t, 2>& offsets,
                          std::span<const std::byte> bytes) {
    for (const uint64_t offset : offsets) {
        TRY_VOID(device.write_now(bytes, offset));
        TRY_VOID(device.flush_now());
    }
    return {};
}

}  // namespace tarn
