// PieceMarks: the pieces (1 MiB of a volume) of which some host's memory may have newer bytes than the store. When
// memory is lost, pages of marked pieces may have lost writes, and no others.
//
// A piece is marked durably before any of its pages may be written, and stays so for a while after all of it is in the
// store. Pure books, and the blocks of 4 KiB that say them on the device; Store guards them and writes them.
//
// Each block has two places, written in turn: the one of the higher sequence counts. A block that is bad in one of them
// may lack marks, whichever it is. What is marked is found by a hash; a block that is full says of all that could be in
// it that it is marked. Decoding treats the bytes as hostile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tiers/nvme/device/superblock.hpp"
#include "tiers/page.hpp"
#include "utils/result.hpp"

namespace tarn {

inline constexpr uint64_t piece_pages = 256;
inline constexpr size_t mark_block_count = 64;
inline constexpr uint64_t marks_size = mark_block_count * page_size;
inline constexpr std::array<uint64_t, 2> marks_offsets = {uint64_t{128} << 10, uint64_t{640} << 10};

class PieceMarks {
  public:
    explicit PieceMarks(const Uuid& store) : store_(store) {}

    // Durably.
    bool has(PageId page) const;
    // The page's piece is to be marked, and where pieces are marked in sequence, some of those that follow. Whether
    // something has to be written for that.
    bool want(PageId page);

    // The first page of each piece that is marked.
    std::vector<PageId> pieces() const;
    size_t count() const;
    // Nothing tells which pieces are marked: all may be.
    bool is_everything() const { return everything_ || full_count_ > 0; }
    void begin_everything() { everything_ = true; }
    // What was wanted until now says it all, and is durable.
    void end_everything() { everything_ = false; }

    // Whether a mark may go takes a while to find out. Until end_clear() the piece has none, but for the device; who
    // wants it meanwhile has it back at once. False: it is not marked, or must stay so.
    bool begin_clear(PageId page);
    void end_clear(PageId page, bool clears);

    // One round of writes at a time: where each block that has changed is to be written. into: mark_block_count pages.
    struct Write {
        uint64_t offset_bytes;
        std::span<const std::byte> bytes;
    };
    std::vector<Write> begin_round(std::span<std::byte> into);
    // All of them are durable.
    void end_round();

    // At open: all blocks as read from both places.
    void load(std::span<const std::byte> first_places, std::span<const std::byte> second_places);
    // As if no mark had ever been made; each block is to be written in both places.
    void clear_all();
    // Some block has to be written in both places.
    bool is_damaged() const { return damaged_; }
    void is_rewritten() { damaged_ = false; }
    // For the latter: all blocks, for each place in turn.
    std::span<const std::byte> encode_all(size_t place, std::span<std::byte> into);

  private:
    // Of 64 neighbouring pieces, one bit each.
    struct Group {
        uint64_t set = 0;       // as the device is to say it
        uint64_t durable = 0;   // as it says, and nobody clears it
        uint64_t clearing = 0;  // it says so, and somebody looks whether it has to
        uint64_t writing = 0;   // as the round under way says it
    };
    struct Block {
        uint64_t sequence = 0;
        std::map<uint64_t, Group> groups;
        bool changed = false;
        bool in_round = false;
        bool full = false;  // too many groups: all that could be here are marked
        bool full_is_durable = false;
    };

    Block& block_of(uint64_t group) { return blocks_[index_of(group)]; }
    const Block& block_of(uint64_t group) const { return blocks_[index_of(group)]; }
    static size_t index_of(uint64_t group);
    std::span<const std::byte> encode(size_t index, std::span<std::byte> into) const;
    Result<Block> decode(size_t index, std::span<const std::byte> bytes) const;

    Uuid store_;
    std::array<Block, mark_block_count> blocks_;
    size_t full_count_ = 0;
    bool everything_ = false;
    bool damaged_ = false;
};

}  // namespace tarn
