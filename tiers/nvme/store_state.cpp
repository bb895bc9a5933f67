#include "tiers/nvme/store_state.hpp"

#include "utils/assert.hpp"

namespace tarn {

namespace {

constexpr size_t stale_max = 1024;

}  // namespace

void StoreState::on_delta(const JournalRecord& record, uint64_t payload, uint64_t end) {
    const uint64_t in_slab = SlabTable::page_in_slab(record.page);
    JournaledPage& page = pages_[record.page.value];
    const bool over_zeros = (record.flags & JournalRecord::base_is_zeros) != 0;
    // What an earlier life of the page left behind is void.
    if (over_zeros || !table.present(record.slab, in_slab)) page = JournaledPage{};
    if (page.oldest == 0) {
        page.oldest = end;
        due_pages_.push_back({.end = end, .page = record.page});
        forget_stale();
    }
    if (over_zeros || record.dirty == all_sectors) page.over_zeros = true;
    for (unsigned sector = 0; sector < sectors_per_page; ++sector) {
        if ((record.dirty >> sector & 1) == 0) continue;
        page.sectors[sector] = static_cast<uint32_t>(payload / journal_unit);
        payload += sector_size;
    }
    page.in_journal |= record.dirty;
    page.checksum = record.checksum;
    page.tenure = record.tenure;
    page.newest = end;
    table.set_present(record.slab, in_slab);
}

void StoreState::on_in_place(const JournalRecord& record, std::span<const InPlaceEntry> entries, uint64_t end) {
    for (uint32_t i = 0; i < record.count; ++i) {
        pages_.erase(record.page.value + i);
        table.set_in_place(record.slab, SlabTable::page_in_slab(record.page) + i,
                           {.tenure = entries[i].tenure, .checksum = entries[i].checksum});
    }
    note_unsaid(record.slab, end);
}

void StoreState::on_clear(const JournalRecord& record, uint64_t end, Cleared then) {
    if ((record.flags & JournalRecord::keeps_space) != 0) then = Cleared::kept;
    const uint64_t first = SlabTable::page_in_slab(record.page);
    for (uint32_t i = 0; i < record.count; ++i)
        if (table.present(record.slab, first + i)) pages_.erase(record.page.value + i);
    if ((record.flags & JournalRecord::releases) != 0) table.forget_reservations(record.slab);
    table.clear(record.slab, first, record.count, then, end);
    note_unsaid(record.slab, end);
}

const JournaledPage* StoreState::find(PageId page) const {
    const auto found = pages_.find(page.value);
    return found == pages_.end() ? nullptr : &found->second;
}

uint64_t StoreState::full_position(uint32_t low, uint64_t tail) {
    const uint64_t tail_units = tail / journal_unit;
    return (tail_units + static_cast<uint32_t>(low - static_cast<uint32_t>(tail_units))) * journal_unit;
}

void StoreState::note_unsaid(SlabIndex slab, uint64_t end) {
    if (unsaid_since_[slab] != 0) return;
    unsaid_since_[slab] = end;
    due_slabs_.push_back({.end = end, .slab = slab});
}

std::vector<PageId> StoreState::take_due_pages(uint64_t end) {
    std::vector<PageId> pages;
    for (; !due_pages_.empty() && due_pages_.front().end <= end; due_pages_.pop_front()) {
        if (is_due(due_pages_.front())) pages.push_back(due_pages_.front().page);
    }
    return pages;
}

bool StoreState::is_due(const DuePage& due) const {
    const JournaledPage* const page = find(due.page);
    return page && page->oldest == due.end;
}

// So that the list is never much longer than there are pages.
void StoreState::forget_stale() {
    if (due_pages_.size() > 2 * pages_.size() + stale_max)
        std::erase_if(due_pages_, [&](const DuePage& due) { return !is_due(due); });
}

std::vector<SlabIndex> StoreState::take_due_slabs(uint64_t end) {
    std::vector<SlabIndex> slabs;
    for (; !due_slabs_.empty() && due_slabs_.front().end <= end; due_slabs_.pop_front())
        if (unsaid_since_[due_slabs_.front().slab] == due_slabs_.front().end) slabs.push_back(due_slabs_.front().slab);
    return slabs;
}

void StoreState::is_in_place(PageId id, const JournaledPage& written, uint64_t tail) {
    const auto found = pages_.find(id.value);
    if (found == pages_.end()) return;  // cleared meanwhile
    JournaledPage& page = found->second;
    if (page.newest == written.newest) {
        pages_.erase(found);
        return;
    }
    // Written to again since: what is newer stays in the journal, above what is in place now.
    if (page.oldest > tail) return;  // it even began anew
    for (unsigned sector = 0; sector < sectors_per_page; ++sector)
        if (page.sectors[sector] == written.sectors[sector])
            page.in_journal &= static_cast<DirtyMask>(~(written.in_journal & 1u << sector));
    page.over_zeros = false;
    page.oldest = tail + 1;
    due_pages_.push_front({.end = page.oldest, .page = id});  // all others lie behind the tail, too
}

}  // namespace tarn
