// StoreState: what the journal's records say, page by page: the slab table, where in the journal the newest bytes of a
// page lie, which pages are to be brought into place, and which blocks of the table must be written before the journal
// can begin later.
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

#include "tiers/nvme/journal/format.hpp"
#include "tiers/nvme/table/slab_table.hpp"

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
    StoreState(const Uuid& store, uint64_t slab_count) : table(store, slab_count), unsaid_since_(slab_count) {}

    // A record that ends at `end` was appended, or replayed; payload is where its payload lies.
    void on_delta(const JournalRecord& record, uint64_t payload, uint64_t end);
    void on_in_place(const JournalRecord& record, std::span<const InPlaceEntry> entries, uint64_t end);
    // then: of a clear that does not keep space.
    void on_clear(const JournalRecord& record, uint64_t end, Cleared then = Cleared::free);

    const JournaledPage* find(PageId page) const;
    size_t journaled_count() const { return pages_.size(); }
    // Bytes of memory for a journaled page with the table's overhead, about.
    static constexpr uint64_t bytes_per_journaled_page = sizeof(JournaledPage) + 56 + 4 * sizeof(uint64_t);
    // A slab is on the list once, and once more for each time its block was written while the ring went round.
    static constexpr uint64_t bytes_per_slab = sizeof(uint64_t) * 2 * 5 + sizeof(uint64_t);
    // The full position of a sector, given any position within one ring's length before or after.
    static uint64_t full_position(uint32_t low, uint64_t tail);

    // The pages with deltas up to `end`, by the first of them; they are off the list, however often they were written.
    std::vector<PageId> take_due_pages(uint64_t end);
    size_t due_count() const { return due_pages_.size(); }
    // The slabs with records up to `end` that their blocks do not have yet. Takes them off the list.
    std::vector<SlabIndex> take_due_slabs(uint64_t end);
    // The slab's block, which is about to be written, has all its records so far.
    void is_said(SlabIndex slab) { unsaid_since_[slab] = 0; }
    // The page's bytes as of `page` are in place and durable, and the records before tail are about to be freed.
    void is_in_place(PageId id, const JournaledPage& page, uint64_t tail);

    SlabTable table;

  private:
    struct DuePage {
        uint64_t end;  // the page's `oldest`; or it is stale: the page was cleared
        PageId page;
    };
    struct DueSlab {
        uint64_t end;
        SlabIndex slab;
    };
    bool is_due(const DuePage& due) const;
    void forget_stale();
    void note_unsaid(SlabIndex slab, uint64_t end);

    std::unordered_map<uint64_t, JournaledPage> pages_;  // never iterated: the order would be anybody's guess
    std::deque<DuePage> due_pages_;                      // by their ends
    std::deque<DueSlab> due_slabs_;                      // those count whose end is the slab's unsaid_since_
    std::vector<uint64_t> unsaid_since_;  // by slab: end of the first record that its block does not say; 0: none
};

}  // namespace tarn
