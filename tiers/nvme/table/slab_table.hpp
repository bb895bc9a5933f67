// SlabTable: which slab of the device holds which 1 MiB of which volume, and of each page whether it was written, and
// checksum and tenure of what lies in its place.
//
// A pure table: no file, no lock; Store guards it. A lookup by (volume, slab number) is one probe sequence of an
// open-addressed index. Pages whose newest bytes are still in the journal are *present* without being *in place*;
// PageIndex says where they are.
//
// On the device each slab has a block of 4 KiB with its own checksum, in two places. A checkpoint writes both, one
// after the other, each made durable before the next: whichever is whole says the same, or is one checkpoint older,
// and then the journal still has what it lacks.
//
// A slab that lost its last page is *releasing*: its old volume may take it up again, and nobody else gets it before
// the record that released it is durable and no read or write of it is in flight.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tiers/nvme/device/superblock.hpp"
#include "tiers/page.hpp"
#include "utils/result.hpp"

namespace tarn {

// What becomes of the space of pages that are cleared.
enum class Cleared : uint8_t {
    free,         // nothing stays reserved
    as_reserved,  // what is reserved stays so
    kept,         // they are reserved, and that outlives the process
};

using SlabIndex = uint32_t;  // of the device, from 0

// One bit per page of a slab.
using PageSet = std::bitset<pages_per_slab>;

// What lies in a page's place on the device.
struct PageEntry {
    Tenure tenure = 0;
    uint32_t checksum = 0;
    bool operator==(const PageEntry&) const = default;
};

class SlabTable {
  public:
    SlabTable(const Uuid& store, uint64_t slab_count);

    static uint64_t slab_number(PageId page) { return page.number() / pages_per_slab; }
    static uint64_t page_in_slab(PageId page) { return page.number() % pages_per_slab; }
    // Bytes of memory for a slab in use, at most.
    static constexpr uint64_t bytes_per_slab() { return sizeof(Slab) + sizeof(Entries) + 2 * sizeof(uint32_t) + 4; }

    // Of a volume's slab, also while it is releasing.
    std::optional<SlabIndex> find(VolumeId volume, uint64_t number) const;
    // The page's slab, allocated if need be, and kept until the page was written or cleared. Errors: no_space.
    Result<SlabIndex> reserve(PageId page);
    // Takes back a reservation that nobody will use.
    void unreserve(SlabIndex slab, uint64_t page);
    bool anything_releasing() const { return !releases_.empty(); }

    bool present(SlabIndex slab, uint64_t page) const { return slabs_[slab].present[page]; }
    bool reserved(SlabIndex slab, uint64_t page) const { return slabs_[slab].reserved[page]; }
    bool in_place(SlabIndex slab, uint64_t page) const { return slabs_[slab].in_place[page]; }
    PageEntry entry(SlabIndex slab, uint64_t page) const;
    void prefetch_entry(SlabIndex slab, uint64_t page) const;
    // Its newest bytes are in the journal; what lies in place stays described.
    void set_present(SlabIndex slab, uint64_t page);
    void set_in_place(SlabIndex slab, uint64_t page, const PageEntry& entry);
    // The pages [first, first + count) of the slab read as zeros from here on, by a record that ends at `position`.
    void clear(SlabIndex slab, uint64_t first, uint64_t count, Cleared then, uint64_t position);
    void forget_reservations(SlabIndex slab) { slabs_[slab].reserved = {}; }
    // Whether such a clear changes anything that a record must tell, and whether it would release the slab.
    bool clear_matters(SlabIndex slab, uint64_t first, uint64_t count, Cleared then) const;
    bool clear_releases(SlabIndex slab, uint64_t first, uint64_t count, Cleared then) const;
    // Where the record of the slab's last clear ends: before that is durable, what lies in place is still needed.
    uint64_t cleared_at(SlabIndex slab) const { return slabs_[slab].cleared_at; }
    // Everything recorded before position is durable: slabs released before it are free.
    void records_are_durable(uint64_t position);

    // While pinned a slab is not given to another volume.
    void pin(SlabIndex slab) { ++slabs_[slab].pins; }
    void unpin(SlabIndex slab);
    // A checkpoint writes pages of the slab in place.
    void begin_checkpoint(SlabIndex slab) { ++slabs_[slab].checkpoints; }
    void end_checkpoint(SlabIndex slab) { --slabs_[slab].checkpoints; }
    bool in_checkpoint(SlabIndex slab) const { return slabs_[slab].checkpoints > 0; }

    uint64_t slab_count() const { return slabs_.size(); }
    uint64_t free_count() const { return free_.size(); }
    uint64_t present_count() const { return present_count_; }  // pages
    // Whose it is, if anybody's.
    std::optional<PageId> first_page(SlabIndex slab) const;
    // The volumes that have slabs, and how many.
    const std::map<VolumeId, uint64_t>& volumes() const { return volumes_; }
    // Calls visit(slab index, slab number) for the volume's slabs among [first, first + count) of the device.
    template <class Visit>
    void for_each(VolumeId volume, SlabIndex first, uint64_t count, Visit visit) const {
        for (uint64_t i = first; i < slabs_.size() && i < first + count; ++i)
            if (slabs_[i].state != State::free && slabs_[i].volume == volume)
                visit(static_cast<SlabIndex>(i), slabs_[i].number);
    }

    // The slab's block as it is to be found on the device: what is in place.
    void encode(SlabIndex slab, uint64_t sequence, BlockBytes into) const;
    static void encode_free(const Uuid& store, SlabIndex slab, uint64_t sequence, BlockBytes into);

    // At open: each slab's block as read from both places. Errors: corrupt.
    struct Loaded {
        uint64_t sequence;
        size_t place;   // the one that counts
        bool complete;  // both places are good
    };
    Result<Loaded> load(SlabIndex slab, ConstBlockBytes first_place, ConstBlockBytes second_place);
    // Replaying a record about a page in this slab: it is this volume's now, whatever a newer table says; what follows
    // in the journal tells the rest. Errors: corrupt.
    Result<> replay_take(SlabIndex slab, PageId page);
    void finish_load();

  private:
    enum class State : uint8_t {
        free,       // nobody's, durably
        used,       // a volume's
        releasing,  // empty; the device may still say used
        released,   // empty, durably; pinned
    };
    struct Entries {
        std::array<Tenure, pages_per_slab> tenures{};
        std::array<uint32_t, pages_per_slab> checksums{};
    };
    struct Slab {
        VolumeId volume = 0;
        uint32_t number = 0;
        PageSet present;
        PageSet in_place;
        PageSet reserved;
        uint32_t pins = 0;
        uint16_t checkpoints = 0;
        State state = State::free;
        bool kept = false;      // used on the device, too, when no page is present
        bool recorded = false;  // the journal or the table on the device know of it
        uint64_t cleared_at = 0;
        std::unique_ptr<Entries> entries;
    };
    struct Release {
        uint64_t position;
        SlabIndex slab;
    };
    struct BlockHeader;

    size_t home_position(VolumeId volume, uint64_t number) const;
    void index_insert(SlabIndex slab);
    void index_remove(SlabIndex slab);
    void occupy(SlabIndex slab, VolumeId volume, uint64_t number);
    Result<SlabIndex> allocate(VolumeId volume, uint64_t number);
    void take_up(SlabIndex slab);
    void release_if_empty(SlabIndex slab);
    void wipe(SlabIndex slab);
    void make_free(SlabIndex slab);

    Uuid store_;
    std::vector<Slab> slabs_;
    std::vector<uint32_t> index_;   // slab index + 1; 0 is empty; linear probing, a power of two ≥ 2 · slabs
    std::vector<SlabIndex> free_;   // a stack; the lowest on top at first, so that new volumes lie in order
    std::deque<Release> releases_;  // in the order of their positions, nearly
    std::map<VolumeId, uint64_t> volumes_;
    uint64_t present_count_ = 0;
    uint64_t durable_ = 0;                    // what was recorded before that position is
    std::vector<uint64_t> loaded_sequences_;  // of the blocks of used slabs, until finish_load
};

}  // namespace tarn
