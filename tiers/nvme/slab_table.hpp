// SlabTable: which slab of the device holds which 1 MiB of which volume, and which of its pages were written.
//
// A pure table: no file, no lock; Store guards it. In memory a lookup by (volume, slab number) is one probe sequence
// of an open-addressed index; nothing is allocated after construction but the lists of what changed.
//
// On the device each entry has 64 bytes and its own checksum, and each 4 KiB block of entries has two places. A
// change writes the block to the place that is older, so the newest durable block is never overwritten: whatever
// sectors of a torn write reach the device, each entry is found as it was before or after.
//
// A slab that lost its last page is *releasing*: its old volume may take it up again, and nobody else gets it before
// the table that says so is durable and no read or write of it is in flight.
//
// Not promised before the journal: an entry that rots is refused, not repaired; and if it is one of the last flush,
// it cannot be told from one that the power cut tore, and the entry before it is taken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "tiers/nvme/superblock.hpp"
#include "tiers/page.hpp"
#include "utils/result.hpp"

namespace tarn {

using SlabIndex = uint32_t;  // of the device, from 0

// One bit per page of a slab.
class PageSet {
  public:
    bool has(uint64_t page) const { return words_[page / 64] >> page % 64 & 1; }
    void add(uint64_t page) { words_[page / 64] |= uint64_t{1} << page % 64; }
    void remove(uint64_t page) { words_[page / 64] &= ~(uint64_t{1} << page % 64); }
    bool empty() const { return words_ == decltype(words_){}; }
    const std::array<uint64_t, pages_per_slab / 64>& words() const { return words_; }
    void set_words(const std::array<uint64_t, pages_per_slab / 64>& words) { words_ = words; }

  private:
    std::array<uint64_t, pages_per_slab / 64> words_{};
};

class SlabTable {
  public:
    SlabTable(const Uuid& store, uint64_t slab_count);

    static uint64_t slab_number(PageId page) { return page.number() / pages_per_slab; }
    static uint64_t page_in_slab(PageId page) { return page.number() % pages_per_slab; }

    // Of a volume's slab, also while it is releasing.
    std::optional<SlabIndex> find(VolumeId volume, uint64_t number) const;
    // The page's slab, allocated if need be, and kept until the page was written or cleared. Errors: no_space.
    Result<SlabIndex> reserve(PageId page);
    // Takes back a reservation that nobody will use.
    void unreserve(SlabIndex slab, uint64_t page);
    bool anything_releasing() const { return releasing_count_ > 0; }

    bool present(SlabIndex slab, uint64_t page) const { return slabs_[slab].present.has(page); }
    bool reserved(SlabIndex slab, uint64_t page) const { return slabs_[slab].reserved.has(page); }
    void set_present(SlabIndex slab, uint64_t page);
    // The pages [first, first + count) of the slab read as zeros from here on. keep: they stay reserved, and that
    // outlives the process.
    void clear(SlabIndex slab, uint64_t first, uint64_t count, bool keep);

    // While pinned a slab is not given to another volume.
    void pin(SlabIndex slab) { ++slabs_[slab].pins; }
    void unpin(SlabIndex slab);

    uint64_t slab_count() const { return slabs_.size(); }
    uint64_t free_count() const { return free_.size(); }
    // The volumes that have slabs, and how many.
    const std::map<VolumeId, uint64_t>& volumes() const { return volumes_; }
    // Calls visit(slab index, slab number) for the volume's slabs among [first, first + count) of the device.
    template <class Visit>
    void for_each(VolumeId volume, SlabIndex first, uint64_t count, Visit visit) const {
        for (uint64_t i = first; i < slabs_.size() && i < first + count; ++i)
            if (slabs_[i].state != State::free && slabs_[i].volume == volume)
                visit(static_cast<SlabIndex>(i), slabs_[i].number);
    }

    // Table blocks to write, and what becomes true when they are durable.
    struct Changes {
        struct Block {
            uint32_t index;
            uint32_t place;  // 0 or 1
        };
        std::vector<Block> blocks;
        std::vector<SlabIndex> released;
    };
    size_t changed_block_count() const { return changed_.size(); }
    // Encodes the blocks that changed first, as many as fit into whole blocks of bytes.
    Changes encode_changes(std::span<std::byte> bytes);
    void changes_are_durable(const Changes& changes);

    // At format: the block of a table in which every slab is free.
    static void encode_empty_block(const Uuid& store, uint64_t block, uint32_t place, BlockBytes into);
    // At open: takes each block with both its places, then checks the whole. Errors: corrupt.
    Result<> load_block(uint64_t block, ConstBlockBytes first_place, ConstBlockBytes second_place);
    Result<> finish_load();

  private:
    enum class State : uint8_t {
        free,       // nobody's, durably
        used,       // a volume's
        releasing,  // empty; the table on the device may still say used
        released,   // empty, durably; pinned
    };
    struct Slab {
        VolumeId volume = 0;
        uint32_t number = 0;
        PageSet present{};
        PageSet reserved{};
        uint32_t pins = 0;
        State state = State::free;
        bool kept = false;  // used on the device, too, when no page is present
    };
    struct Block {
        uint8_t newest_place = 0;
        bool changed = false;
    };
    struct Entry;

    size_t home_position(VolumeId volume, uint64_t number) const;
    void index_insert(SlabIndex slab);
    void index_remove(SlabIndex slab);
    Result<SlabIndex> allocate(VolumeId volume, uint64_t number);
    void take_up(SlabIndex slab);
    void release_if_empty(SlabIndex slab);
    void make_free(SlabIndex slab);
    void mark_changed(SlabIndex slab);
    void encode_block(uint32_t block, uint32_t place, uint64_t sequence, BlockBytes into) const;

    Uuid store_;
    std::vector<Slab> slabs_;
    std::vector<Block> blocks_;
    std::vector<uint32_t> index_;    // slab index + 1; 0 is empty; linear probing, a power of two ≥ 2 · slabs
    std::vector<SlabIndex> free_;    // a stack; the lowest on top at first, so that new volumes lie in order
    std::vector<uint32_t> changed_;  // blocks, in the order they changed
    std::map<VolumeId, uint64_t> volumes_;
    uint64_t releasing_count_ = 0;
    uint64_t sequence_ = 1;       // of the newest block written; one per encode_changes
    uint64_t torn_sequence_ = 0;  // while loading: the sequence that a torn block must have
    bool torn_ = false;
};

}  // namespace tarn
