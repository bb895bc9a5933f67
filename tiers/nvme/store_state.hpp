// StoreState: what the journal's records say, page by page: the slab table, where in the journal the newest bytes of a
// page lie, and what the next checkpoint must bring into place.
//
// The same calls are made when a record is appended and when it is replayed, so that what a restart finds is what was
// there before. Pure: no I/O and no lock; Store guards it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "tiers/nvme/journal_format.hpp"
#include "tiers/nvme/slab_table.hpp"

namespace tarn {

// A page whose newest bytes are in the journal, at least in part.
struct JournaledPage {
    // Of each sector in the journal its position, in units of journal_unit: the low 32 bits.
    std::array<uint32_t, sectors_per_page> sectors{};
    uint32_t checksum = 0;     // of the whole page
    DirtyMask in_journal = 0;  // the other sectors are in place, or
    bool over_zeros = false;   // zeros
    Tenure tenure = 0;
    uint64_t oldest = 0;  // end of the first record that no checkpoint has covered
    uint64_t newest = 0;  // end of the last record

    bool needs_place() const { return !over_zeros && in_journal != all_sectors; }
};

class StoreState {
  public:
    StoreState(const Uuid& store, uint64_t slab_count) : table(store, slab_count) {}

    // A record that ends at `end` was appended, or replayed; payload is where its payload lies.
    void on_delta(const JournalRecord& record, uint64_t payload, uint64_t end);
    void on_in_place(const JournalRecord& record, std::span<const InPlaceEntry> entries, uint64_t end);
    void on_clear(const JournalRecord& record, uint64_t end);

    const JournaledPage* find(PageId page) const;
    size_t journaled_count() const { return pages_.size(); }
    // Bytes of memory for a journaled page with the table's overhead, about.
    static constexpr uint64_t bytes_per_journaled_page = sizeof(JournaledPage) + 56;
    static constexpr uint64_t bytes_per_record = 24;
    // The full position of a sector, given any position within one ring's length before or after.
    static uint64_t full_position(uint32_t low, uint64_t tail);

    // Takes what was recorded up to `end` off the list of what a checkpoint must bring into place.
    struct Due {
        std::vector<PageId> pages;     // sorted, each once
        std::vector<SlabIndex> slabs;  // sorted, each once: with those of the pages
    };
    Due take_due(uint64_t end);
    // The page's bytes as of `page` are in place and durable, and the records before tail are about to be freed.
    void is_in_place(PageId id, const JournaledPage& page, uint64_t tail);

    SlabTable table;

  private:
    struct Recorded {
        uint64_t end;
        uint64_t page;  // of a delta; no_page otherwise
        SlabIndex slab;
    };
    static constexpr uint64_t no_page = UINT64_MAX;

    std::unordered_map<uint64_t, JournaledPage> pages_;  // never iterated: the order would be anybody's guess
    std::deque<Recorded> due_;
};

}  // namespace tarn
