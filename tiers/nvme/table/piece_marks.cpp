#include "tiers/nvme/table/piece_marks.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tiers/nvme/device/checksum.hpp"
#include "tiers/nvme/table/loss_list.hpp"
#include "utils/assert.hpp"

namespace tarn {

namespace {

constexpr std::array<char, 8> marks_magic = {'t', 'a', 'r', 'n', 'm', 'a', 'r', 'k'};
constexpr uint64_t group_pieces = 64;
constexpr uint64_t group_pages = group_pieces * piece_pages;
constexpr uint64_t pieces_ahead = 15;  // of a sequence: one write for all of them
constexpr uint32_t flag_full = 1;

struct MarksHeader {
    std::array<char, 8> magic;
    uint64_t sequence;
    uint32_t index;
    uint32_t count;
    uint32_t flags;
    uint32_t checksum;  // of the store's UUID and the block with this field zero
    std::array<uint64_t, 4> reserved;
};
static_assert(sizeof(MarksHeader) == 64);
constexpr size_t checksum_offset = offsetof(MarksHeader, checksum);

struct Entry {
    uint64_t group;
    uint64_t set;
};
constexpr size_t entries_max = (page_size - sizeof(MarksHeader)) / sizeof(Entry);
static_assert(marks_offsets[0] >= loss_list_offsets[0] + loss_list_size_max &&
              marks_offsets[0] + marks_size <= StoreLayout::superblock_offsets[1] &&
              marks_offsets[1] >= loss_list_offsets[1] + loss_list_size_max &&
              marks_offsets[1] + marks_size <= StoreLayout::journal_offset);

uint64_t group_of(PageId page) {
    return page.value / group_pages;
}
uint64_t bit_of(PageId page) {
    return uint64_t{1} << page.value / piece_pages % group_pieces;
}

uint32_t checksum_of(const Uuid& store, std::span<const std::byte> block) {
    return crc32c_around(block, checksum_offset, crc32c(std::as_bytes(std::span(store))));
}

}  // namespace

// Neighbours lie apart, so that one volume fills no block before the others.
size_t PieceMarks::index_of(uint64_t group) {
    return (group * 0x9e3779b97f4a7c15u) >> 58;
}
static_assert(mark_block_count == 64, "six bits of the hash");

bool PieceMarks::has(PageId page) const {
    if (everything_) return true;
    const Block& block = block_of(group_of(page));
    if (block.full_is_durable) return true;
    const auto found = block.groups.find(group_of(page));
    return found != block.groups.end() && (found->second.durable & bit_of(page)) != 0;
}

bool PieceMarks::want(PageId page) {
    Block& block = block_of(group_of(page));
    if (block.full_is_durable) return false;
    Group& group = block.groups[group_of(page)];
    const uint64_t bit = bit_of(page);
    if ((group.durable & bit) != 0) return false;
    if ((group.clearing & bit) != 0) {
        group.clearing &= ~bit;
        group.durable |= bit;
        return false;
    }
    uint64_t wanted = bit;
    if ((group.set & bit >> 1) != 0)
        for (uint64_t i = 0; i < pieces_ahead; ++i) wanted |= wanted << 1;
    block.changed |= (wanted & ~group.set) != 0;
    group.set |= wanted;
    return true;
}

std::vector<PageId> PieceMarks::pieces() const {
    std::vector<PageId> pieces;
    for (const Block& block : blocks_)
        for (const auto& [number, group] : block.groups)
            for (uint64_t left = group.set; left != 0; left &= left - 1)
                pieces.push_back({number * group_pages + static_cast<uint64_t>(std::countr_zero(left)) * piece_pages});
    std::ranges::sort(pieces);
    return pieces;
}

size_t PieceMarks::count() const {
    size_t count = 0;
    for (const Block& block : blocks_)
        for (const auto& [number, group] : block.groups) count += static_cast<size_t>(std::popcount(group.set));
    return count;
}

bool PieceMarks::begin_clear(PageId page) {
    Block& block = block_of(group_of(page));
    const auto found = block.groups.find(group_of(page));
    if (everything_ || block.full || found == block.groups.end()) return false;
    Group& group = found->second;
    const uint64_t bit = bit_of(page);
    if ((group.durable & bit) == 0) return false;
    group.durable &= ~bit;
    group.clearing |= bit;
    return true;
}

void PieceMarks::end_clear(PageId page, bool clears) {
    Block& block = block_of(group_of(page));
    const auto found = block.groups.find(group_of(page));
    if (found == block.groups.end()) return;
    Group& group = found->second;
    const uint64_t bit = bit_of(page);
    if ((group.clearing & bit) == 0) return;  // somebody wanted it
    group.clearing &= ~bit;
    if (clears) {
        group.set &= ~bit;
        block.changed = true;
    } else {
        group.durable |= bit;
    }
}

std::vector<PieceMarks::Write> PieceMarks::begin_round(std::span<std::byte> into) {
    TARN_ASSERT(into.size() == marks_size);
    std::vector<Write> writes;
    for (size_t index = 0; index < mark_block_count; ++index) {
        Block& block = blocks_[index];
        if (!std::exchange(block.changed, false)) continue;
        std::erase_if(block.groups, [](const auto& each) { return each.second.set == 0; });
        if (!block.full && block.groups.size() > entries_max) {
            block.full = true;
            ++full_count_;
        }
        for (auto& [number, group] : block.groups) group.writing = group.set;
        block.in_round = true;
        ++block.sequence;
        const size_t place = block.sequence % marks_offsets.size();
        writes.push_back({.offset_bytes = marks_offsets[place] + index * page_size,
                          .bytes = encode(index, into.subspan(index * page_size, page_size))});
    }
    return writes;
}

void PieceMarks::end_round() {
    for (Block& block : blocks_) {
        if (!std::exchange(block.in_round, false)) continue;
        block.full_is_durable = block.full;
        // What was cleared meanwhile and is wanted again is on the device all the same: the next round says it, too.
        for (auto& [number, group] : block.groups)
            group.durable |= std::exchange(group.writing, 0) & group.set & ~group.clearing;
    }
}

std::span<const std::byte> PieceMarks::encode(size_t index, std::span<std::byte> into) const {
    const Block& block = blocks_[index];
    std::ranges::fill(into, std::byte{0});
    MarksHeader header{.magic = marks_magic,
                       .sequence = block.sequence,
                       .index = static_cast<uint32_t>(index),
                       .flags = block.full ? flag_full : 0};
    for (const auto& [number, group] : block.groups) {
        if (group.set == 0 || header.count == entries_max) continue;
        const Entry entry{.group = number, .set = group.set};
        std::memcpy(&into[sizeof header + header.count++ * sizeof entry], &entry, sizeof entry);
    }
    std::memcpy(into.data(), &header, sizeof header);
    const uint32_t checksum = checksum_of(store_, into);
    std::memcpy(&into[checksum_offset], &checksum, sizeof checksum);
    return into;
}

Result<PieceMarks::Block> PieceMarks::decode(size_t index, std::span<const std::byte> bytes) const {
    MarksHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.magic != marks_magic || header.index != index || header.count > entries_max)
        return fail(Errc::corrupt, 0, "store.marks: not a block of marks");
    if (header.checksum != checksum_of(store_, bytes)) return fail(Errc::corrupt, 0, "store.marks: wrong checksum");
    Block block{.sequence = header.sequence, .groups = {}, .full = (header.flags & flag_full) != 0};
    block.full_is_durable = block.full;
    for (size_t i = 0; i < header.count; ++i) {
        Entry entry;
        std::memcpy(&entry, &bytes[sizeof header + i * sizeof entry], sizeof entry);
        if (index_of(entry.group) != index || entry.group > UINT64_MAX / group_pages)
            return fail(Errc::corrupt, 0, "store.marks: of another block");
        block.groups[entry.group] = {.set = entry.set, .durable = entry.set};
    }
    return block;
}

void PieceMarks::load(std::span<const std::byte> first_places, std::span<const std::byte> second_places) {
    for (size_t index = 0; index < mark_block_count; ++index) {
        Result<Block> first = decode(index, first_places.subspan(index * page_size, page_size));
        Result<Block> second = decode(index, second_places.subspan(index * page_size, page_size));
        damaged_ |= !first || !second;
        if (!first && !second) continue;
        const bool takes_first = first && (!second || first->sequence > second->sequence);
        blocks_[index] = std::move(takes_first ? *first : *second);
        full_count_ += blocks_[index].full;
    }
    everything_ |= damaged_;
}

void PieceMarks::clear_all() {
    for (Block& block : blocks_) {
        damaged_ |= !block.groups.empty() || block.full;
        block.groups.clear();
        block.full = block.full_is_durable = false;
    }
    full_count_ = 0;
}

std::span<const std::byte> PieceMarks::encode_all(size_t place, std::span<std::byte> into) {
    for (size_t index = 0; index < mark_block_count; ++index) {
        Block& block = blocks_[index];
        do {
            ++block.sequence;
        } while (block.sequence % marks_offsets.size() != place);
        encode(index, into.subspan(index * page_size, page_size));
    }
    return into;
}

}  // namespace tarn
