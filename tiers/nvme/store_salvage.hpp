// Store::Salvage: what a damaged journal still tells, while its records are replayed.
//
// A hole of the journal says nothing, or cannot be believed. What comes after it can be: a record that needs nothing
// beneath it says what its page is; one that changes some sectors says by the checksum of what it applies to whether
// the page was written to in the hole. Such a page keeps the bytes of before, which can be proved, and is lost.
//
// Of the hole itself those records count that prove themselves: whole pages by their checksum, and pages in their
// places. If all of its records can be told apart, and what each is about lies where the slab table says, then the lost
// pages are those of the MiB of each record that does not prove itself. Otherwise it may have been about any page.
#pragma once

#include <set>

#include "tiers/nvme/journal/scan.hpp"
#include "tiers/nvme/store.hpp"

namespace tarn {

class Store::Salvage final : public JournalSalvage {
  public:
    explicit Salvage(Store& store) : store_(store) {}

    // A record is about to be replayed, its slab taken. False: it applies to what is not here, or was replayed.
    bool admits(const FoundRecord& found);
    bool is_after_hole() const { return after_hole_; }
    Result<> on_hole(const JournalHole& hole, uint32_t previous, std::span<const std::byte> bytes) override;

    // Once the replay has ended.
    SalvageReport report() const;

  private:
    bool keep_records(std::span<const std::byte> bytes);
    // Whether the record's pages, if not the record, can be told.
    bool keep_or_lose(const FoundRecord& found);
    Result<bool> keep_pages_in_place(const FoundRecord& found);
    void take(const JournalRecord& record);
    bool is_where_the_table_says(const JournalRecord& record) const;
    void lose(PageId first, uint64_t count);
    void prove(PageId first, uint64_t count);

    Store& store_;
    bool after_hole_ = false;
    uint64_t bytes_damaged_ = 0;
    uint64_t records_kept_ = 0;
    bool any_page_ = false;
    std::set<uint64_t> lost_;    // page ids
    std::set<uint64_t> proved_;  // with any_page: those that are not
};

}  // namespace tarn
