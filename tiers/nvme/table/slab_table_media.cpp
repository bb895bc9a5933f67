// The slab table as it lies on the device: blocks, their checks, and which of two places to believe.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tiers/nvme/device/checksum.hpp"
#include "tiers/nvme/table/slab_table.hpp"
#include "utils/assert.hpp"

namespace tarn {

namespace {

enum class BlockState : uint32_t { free = 1, used = 2 };  // zero is neither: a zeroed block is a bad one
constexpr uint32_t flag_kept = 1;

using PageWords = std::array<uint64_t, pages_per_slab / 64>;
static_assert(std::bit_cast<PageWords>(PageSet(2)) == PageWords{2}, "page 0 is the lowest bit of the first word");

}  // namespace

// One 4 KiB block: this, then the checksums and the tenures of the pages, then zeros.
struct SlabTable::BlockHeader {
    BlockState state = BlockState::free;
    VolumeId volume = 0;
    uint32_t number = 0;
    uint32_t flags = 0;
    uint64_t sequence = 0;
    PageWords in_place{};
    uint32_t reserved = 0;
    uint32_t checksum = 0;  // of the store's id, the slab's number and the block with this field zero

    static constexpr size_t checksums_offset = 64;
    static constexpr size_t tenures_offset = checksums_offset + pages_per_slab * sizeof(uint32_t);

    static uint32_t checksum_of(const Uuid& store, uint64_t slab, ConstBlockBytes block) {
        const uint32_t sum = crc32c(std::as_bytes(std::span(&slab, 1)), crc32c(std::as_bytes(std::span(store))));
        return crc32c_around(block, offsetof(BlockHeader, checksum), sum);
    }
    void seal(const Uuid& store, uint64_t slab, BlockBytes block) {
        static_assert(sizeof(BlockHeader) == checksums_offset && tenures_offset + pages_per_slab * 8 <= page_size);
        static_assert(std::has_unique_object_representations_v<BlockHeader>);
        std::memcpy(block.data(), this, sizeof *this);
        checksum = checksum_of(store, slab, block);
        std::memcpy(block.data() + offsetof(BlockHeader, checksum), &checksum, sizeof checksum);
    }
    static std::optional<BlockHeader> unseal(const Uuid& store, uint64_t slab, ConstBlockBytes block) {
        BlockHeader header;
        std::memcpy(&header, block.data(), sizeof header);
        if (header.checksum != checksum_of(store, slab, block)) return std::nullopt;
        return header;
    }
};

void SlabTable::encode_free(const Uuid& store, SlabIndex slab, uint64_t sequence, BlockBytes into) {
    std::ranges::fill(into, std::byte{0});
    BlockHeader{.sequence = sequence}.seal(store, slab, into);
}

void SlabTable::encode(SlabIndex index, uint64_t sequence, BlockBytes into) const {
    const Slab& slab = slabs_[index];
    // A slab with reservations only, or with pages that the journal has, is free on the device.
    if (slab.state != State::used || (!slab.kept && slab.in_place.none()))
        return encode_free(store_, index, sequence, into);
    std::ranges::fill(into, std::byte{0});
    // What is described is what is in place: the rest stays zero, whatever was there before.
    Entries entries;
    for (uint64_t page = 0; page < pages_per_slab; ++page) {
        if (!slab.in_place[page]) continue;
        entries.checksums[page] = slab.entries->checksums[page];
        entries.tenures[page] = slab.entries->tenures[page];
    }
    std::memcpy(into.data() + BlockHeader::checksums_offset, entries.checksums.data(), sizeof entries.checksums);
    std::memcpy(into.data() + BlockHeader::tenures_offset, entries.tenures.data(), sizeof entries.tenures);
    BlockHeader{.state = BlockState::used,
                .volume = slab.volume,
                .number = slab.number,
                .flags = slab.kept ? flag_kept : 0,
                .sequence = sequence,
                .in_place = std::bit_cast<PageWords>(slab.in_place)}
        .seal(store_, index, into);
}

Result<SlabTable::Loaded> SlabTable::load(SlabIndex index, ConstBlockBytes first_place, ConstBlockBytes second_place) {
    const std::array<ConstBlockBytes, 2> places = {first_place, second_place};
    const std::array<std::optional<BlockHeader>, 2> headers = {BlockHeader::unseal(store_, index, first_place),
                                                               BlockHeader::unseal(store_, index, second_place)};
    if (!headers[0] && !headers[1])
        return fail(Errc::corrupt, 0, "store.slab_table: both blocks of a slab have a wrong checksum");
    const size_t place = !headers[0] || (headers[1] && headers[1]->sequence > headers[0]->sequence) ? 1 : 0;
    const BlockHeader& header = *headers[place];
    if (header.sequence > journal_position_max)
        return fail(Errc::corrupt, 0, "store.slab_table: sequence out of range");
    const Loaded loaded{.sequence = header.sequence, .place = place, .complete = headers[0] && headers[1]};
    if (header.state == BlockState::free) return loaded;
    if (header.state != BlockState::used || header.volume > volume_id_max)
        return fail(Errc::corrupt, 0, "store.slab_table: an entry makes no sense");
    // A checkpoint that was cut short may have said where the place lies now, and not yet that the old slab is free.
    if (const auto other = find(header.volume, header.number)) {
        if (loaded_sequences_[*other] == header.sequence)
            return fail(Errc::corrupt, 0, "store.slab_table: two slabs for one place of a volume");
        if (loaded_sequences_[*other] > header.sequence) return loaded;
        wipe(*other);
    }
    occupy(index, header.volume, header.number);
    Slab& slab = slabs_[index];
    loaded_sequences_.resize(slabs_.size());
    loaded_sequences_[index] = header.sequence;
    slab.recorded = true;
    slab.kept = (header.flags & flag_kept) != 0;
    slab.in_place = slab.present = std::bit_cast<PageSet>(header.in_place);
    present_count_ += slab.present.count();
    if (slab.kept) slab.reserved = ~slab.present;
    std::memcpy(slab.entries->checksums.data(), places[place].data() + BlockHeader::checksums_offset,
                sizeof slab.entries->checksums);
    std::memcpy(slab.entries->tenures.data(), places[place].data() + BlockHeader::tenures_offset,
                sizeof slab.entries->tenures);
    return loaded;
}

Result<> SlabTable::replay_take(SlabIndex index, PageId page) {
    if (index >= slabs_.size()) return fail(Errc::corrupt, 0, "store.journal: a record about a slab beyond the end");
    const auto known = find(page.volume(), slab_number(page));
    if (known && *known != index) wipe(*known);
    Slab& slab = slabs_[index];
    if (slab.state != State::free && (slab.volume != page.volume() || slab.number != slab_number(page))) wipe(index);
    if (slab.state == State::free) occupy(index, page.volume(), slab_number(page));
    take_up(index);
    slab.recorded = true;
    return {};
}

void SlabTable::finish_load() {
    loaded_sequences_ = {};
    releases_.clear();
    free_.clear();
    for (uint64_t i = slabs_.size(); i-- > 0;) {
        const auto index = static_cast<SlabIndex>(i);
        const Slab& slab = slabs_[index];
        if (slab.state != State::free && !slab.kept && slab.present.none()) wipe(index);
        if (slab.state == State::free) free_.push_back(index);
    }
}

}  // namespace tarn
