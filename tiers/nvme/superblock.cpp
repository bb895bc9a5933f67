#include "tiers/nvme/superblock.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tiers/nvme/checksum.hpp"

namespace tarn {

namespace {

constexpr std::array<char, 8> magic = {'t', 'a', 'r', 'n', 's', 't', 'o', 'r'};
constexpr uint32_t format_version = 1;
constexpr uint64_t table_start = uint64_t{1} << 20;

static_assert(std::endian::native == std::endian::little, "the media are little-endian, and so are we");

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
    uint32_t reserved;
    uint32_t checksum;  // of the whole block with this field zero
};
static_assert(sizeof(Header) == 104);
constexpr size_t checksum_offset = offsetof(Header, checksum);

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

uint32_t checksum_of(ConstBlockBytes block) {
    constexpr std::array<std::byte, sizeof(uint32_t)> zeros{};
    const uint32_t before = crc32c(block.first(checksum_offset));
    return crc32c(block.subspan(checksum_offset + zeros.size()), crc32c(zeros, before));
}

}  // namespace

StoreLayout StoreLayout::of(uint64_t slab_count) {
    StoreLayout layout;
    layout.table_block_count = round_up(slab_count, slab_entries_per_block) / slab_entries_per_block;
    layout.table_offsets[0] = table_start;
    layout.table_offsets[1] = table_start + layout.table_block_count * page_size;
    layout.data_offset = round_up(layout.table_offsets[1] + layout.table_block_count * page_size, slab_size);
    layout.end = layout.data_offset + slab_count * slab_size;
    return layout;
}

uint64_t StoreLayout::slab_count_for(uint64_t size_bytes) {
    uint64_t slab_count = std::min(size_bytes / slab_size, slab_count_max);
    while (slab_count > 0 && of(slab_count).end > size_bytes) {
        const uint64_t excess = (of(slab_count).end - size_bytes + slab_size - 1) / slab_size;
        slab_count -= std::min(slab_count, excess);
    }
    return slab_count;
}

void encode_superblock(const Superblock& superblock, BlockBytes into) {
    std::ranges::fill(into, std::byte{0});
    const Header header{
        .magic = magic,
        .version = format_version,
        .page_size_bytes = page_size,
        .slab_size_bytes = slab_size,
        .cluster = superblock.identity.cluster,
        .store = superblock.store,
        .host = superblock.identity.host,
        .slab_count = superblock.slab_count,
        .generation = superblock.generation,
        .home_epoch = superblock.home_epoch,
        .loss_generation = superblock.loss_generation,
        .reserved = 0,
        .checksum = 0,
    };
    std::memcpy(into.data(), &header, sizeof header);
    const uint32_t checksum = checksum_of(into);
    std::memcpy(into.data() + checksum_offset, &checksum, sizeof checksum);
}

Result<Superblock> decode_superblock(ConstBlockBytes bytes) {
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.magic != magic) return fail(Errc::not_found, 0, "store.superblock: not a tarn store");
    // Before the version: a newer format keeps the place of the checksum, so that this tells rot from progress.
    if (header.checksum != checksum_of(bytes)) return fail(Errc::corrupt, 0, "store.superblock: wrong checksum");
    if (header.version != format_version) return fail(Errc::unsupported, 0, "store.superblock: unknown version");
    if (header.page_size_bytes != page_size || header.slab_size_bytes != slab_size)
        return fail(Errc::corrupt, 0, "store.superblock: wrong page or slab size");
    if (header.host >= hosts_max) return fail(Errc::corrupt, 0, "store.superblock: host id out of range");
    if (header.slab_count == 0 || header.slab_count > slab_count_max)
        return fail(Errc::corrupt, 0, "store.superblock: slab count out of range");
    if (header.home_epoch > home_epoch_max) return fail(Errc::corrupt, 0, "store.superblock: home epoch out of range");
    if (header.generation == UINT64_MAX || header.loss_generation == UINT64_MAX)
        return fail(Errc::corrupt, 0, "store.superblock: generation out of range");
    return Superblock{
        .identity = {.cluster = header.cluster, .host = static_cast<HostId>(header.host)},
        .store = header.store,
        .slab_count = header.slab_count,
        .generation = header.generation,
        .home_epoch = header.home_epoch,
        .loss_generation = header.loss_generation,
    };
}

Result<Superblock> choose_superblock(const Result<Superblock>& first, const Result<Superblock>& second) {
    if (first && second) {
        if (first->store != second->store || first->slab_count != second->slab_count ||
            first->identity != second->identity)
            return fail(Errc::corrupt, 0, "store.superblock: the two copies are of different stores");
        return first->generation >= second->generation ? first : second;
    }
    if (first) return first;
    if (second) return second;
    // Something that was a store once says more than "not a store".
    return first.error().code == Errc::not_found ? second : first;
}

}  // namespace tarn
