#include "tiers/nvme/device/superblock.hpp"

#include <cstring>

#include "tiers/nvme/device/checksum.hpp"

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
};
static_assert(offsetof(Header, journal_size_bytes) == 104 && offsetof(Header, forgotten) == 136);
static_assert(offsetof(Header, starts) == 400 && offsetof(Header, heard_epochs) == 3472 &&
              offsetof(Header, host_name) == 3728);
static_assert(sizeof(Header) <= page_size);
constexpr size_t checksum_offset = offsetof(Header, checksum);
constexpr uint32_t flag_complete = 1;
constexpr uint32_t flag_marks = 2;

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
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
    Header header{
        .magic = magic,
        .version = version,
        .page_size_bytes = page_size,
        .slab_size_bytes = slab_size,
        .cluster = superblock.identity.cluster,
        .store = superblock.store,
        .host = superblock.identity.host,
        .slab_count = superblock.geometry.slab_count,
        .generation = superblock.generation,
        .home_epoch = superblock.home_epoch,
        .loss_generation = superblock.loss_generation,
        .flags = (superblock.is_complete ? flag_complete : 0) | (superblock.has_marks ? flag_marks : 0),
        .journal_size_bytes = superblock.geometry.journal_size,
        .data_alignment_bytes = superblock.geometry.data_alignment,
        .journal_tail = superblock.journal_tail,
        .journal_tail_checksum = superblock.journal_tail_checksum,
        .used_epoch = static_cast<uint32_t>(superblock.used_epoch),
        .outdone_by_epoch = superblock.outdone_by_epoch,
        .accepted_epoch = superblock.accepted_epoch,
        .starts = superblock.starts,
        .host_name = superblock.identity.host_name,
    };
    std::ranges::copy(superblock.forgotten, header.forgotten.begin());
    for (HostId host = 0; host < hosts_max; ++host) {
        header.heard_nonces[host] = superblock.heard[host].nonce;
        header.heard_positions[host] = superblock.heard[host].position;
        header.heard_epochs[host] = superblock.heard[host].epoch;
    }
    std::memcpy(into.data(), &header, sizeof header);
    const uint32_t checksum = crc32c_around(into, checksum_offset);
    std::memcpy(into.data() + checksum_offset, &checksum, sizeof checksum);
}

Result<Superblock> decode_superblock(ConstBlockBytes bytes, uint32_t version) {
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
    if (header.version < version)
        return fail(
            Errc::unsupported, 0,
            "store.superblock: of format 2, which this tarn writes no more; start tarnd with --upgrade to bring "
            "it to format 3 in place, after which no older tarn reads it");
    if (header.version > version) return fail(Errc::unsupported, 0, "store.superblock: of a newer format");
    if (header.page_size_bytes != page_size || header.slab_size_bytes != slab_size)
        return fail(Errc::corrupt, 0, "store.superblock: wrong page or slab size");
    if (header.host >= hosts_max) return fail(Errc::corrupt, 0, "store.superblock: host id out of range");
    const StoreGeometry geometry{.slab_count = header.slab_count,
                                 .journal_size = header.journal_size_bytes,
                                 .data_alignment = header.data_alignment_bytes};
    if (!makes_sense(geometry)) return fail(Errc::corrupt, 0, "store.superblock: sizes out of range");
    if (header.home_epoch > home_epoch_max) return fail(Errc::corrupt, 0, "store.superblock: home epoch out of range");
    if (header.outdone_by_epoch > home_epoch_max || header.accepted_epoch > header.home_epoch ||
        header.used_epoch > header.home_epoch)
        return fail(Errc::corrupt, 0, "store.superblock: another home epoch out of range");
    if (header.generation == UINT64_MAX || header.loss_generation == UINT64_MAX)
        return fail(Errc::corrupt, 0, "store.superblock: generation out of range");
    if (header.journal_tail % page_size != 0 || header.journal_tail > journal_position_max)
        return fail(Errc::corrupt, 0, "store.superblock: the journal begins nowhere");
    Superblock superblock{
        .identity = {.cluster = header.cluster,
                     .host = static_cast<HostId>(header.host),
                     .host_name = header.host_name},
        .store = header.store,
        .geometry = geometry,
        .generation = header.generation,
        .home_epoch = header.home_epoch,
        .used_epoch = header.used_epoch,
        .loss_generation = header.loss_generation,
        .is_complete = (header.flags & flag_complete) != 0,
        .has_marks = (header.flags & flag_marks) != 0,
        .journal_tail = header.journal_tail,
        .journal_tail_checksum = header.journal_tail_checksum,
        .starts = header.starts,
        .outdone_by_epoch = header.outdone_by_epoch,
        .accepted_epoch = header.accepted_epoch,
    };
    std::copy_n(header.forgotten.begin(), hosts_max, superblock.forgotten.begin());
    for (HostId host = 0; host < hosts_max; ++host)
        superblock.heard[host] = {.epoch = header.heard_epochs[host],
                                  .nonce = header.heard_nonces[host],
                                  .position = header.heard_positions[host]};
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

}  // namespace tarn
