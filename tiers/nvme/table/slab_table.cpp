#include "tiers/nvme/table/slab_table.hpp"

#include <algorithm>

#include "utils/assert.hpp"

namespace tarn {

SlabTable::SlabTable(const Uuid& store, uint64_t slab_count)
    : store_(store), slabs_(slab_count), index_(std::bit_ceil(slab_count * 2)) {
    TARN_ASSERT(slab_count > 0 && slab_count <= slab_count_max);
    free_.reserve(slab_count);
    for (uint64_t i = slab_count; i-- > 0;) free_.push_back(static_cast<SlabIndex>(i));
}

size_t SlabTable::home_position(VolumeId volume, uint64_t number) const {
    return mix64(PageId::of(volume, number).value) & (index_.size() - 1);
}

std::optional<SlabIndex> SlabTable::find(VolumeId volume, uint64_t number) const {
    for (size_t i = home_position(volume, number); index_[i] != 0; i = (i + 1) & (index_.size() - 1)) {
        const Slab& slab = slabs_[index_[i] - 1];
        if (slab.volume == volume && slab.number == number) return index_[i] - 1;
    }
    return std::nullopt;
}

void SlabTable::index_insert(SlabIndex slab) {
    size_t i = home_position(slabs_[slab].volume, slabs_[slab].number);
    while (index_[i] != 0) i = (i + 1) & (index_.size() - 1);
    index_[i] = slab + 1;
}

// Moves later entries of the probe sequence into the gap, so that none is cut off and no tombstone is needed.
void SlabTable::index_remove(SlabIndex slab) {
    const size_t mask = index_.size() - 1;
    size_t gap = home_position(slabs_[slab].volume, slabs_[slab].number);
    while (index_[gap] != slab + 1) gap = (gap + 1) & mask;
    for (size_t i = (gap + 1) & mask; index_[i] != 0; i = (i + 1) & mask) {
        const Slab& other = slabs_[index_[i] - 1];
        const size_t home = home_position(other.volume, other.number);
        if (((i - home) & mask) < ((i - gap) & mask)) continue;  // its home lies after the gap
        index_[gap] = index_[i];
        gap = i;
    }
    index_[gap] = 0;
}

void SlabTable::occupy(SlabIndex index, VolumeId volume, uint64_t number) {
    Slab& slab = slabs_[index];
    slab.volume = volume;
    slab.number = static_cast<uint32_t>(number);
    slab.state = State::used;
    slab.entries = std::make_unique<Entries>();
    ++volumes_[volume];
    index_insert(index);
}

Result<SlabIndex> SlabTable::allocate(VolumeId volume, uint64_t number) {
    if (free_.empty()) return fail(Errc::no_space, 0, "store.allocate");
    const SlabIndex index = free_.back();
    free_.pop_back();
    TARN_ASSERT(slabs_[index].state == State::free && slabs_[index].pins == 0);
    occupy(index, volume, number);
    return index;
}

Result<SlabIndex> SlabTable::reserve(PageId page) {
    SlabIndex index = 0;
    if (const auto found = find(page.volume(), slab_number(page))) {
        index = *found;
    } else {
        TRY(index, allocate(page.volume(), slab_number(page)));
    }
    take_up(index);
    if (!present(index, page_in_slab(page))) slabs_[index].reserved.set(page_in_slab(page));
    return index;
}

void SlabTable::unreserve(SlabIndex index, uint64_t page) {
    slabs_[index].reserved.reset(page);
    release_if_empty(index);
}

// An empty slab gets a page again before it could be freed. Its release still stands in the queue, and will find it so.
void SlabTable::take_up(SlabIndex index) {
    TARN_ASSERT(slabs_[index].state != State::free);
    slabs_[index].state = State::used;
}

void SlabTable::release_if_empty(SlabIndex index) {
    Slab& slab = slabs_[index];
    if (slab.state != State::used || slab.kept || slab.present.any() || slab.reserved.any()) return;
    // It had been released before, and only reserved since: no record has to become durable for it.
    if (slab.cleared_at != 0 && slab.cleared_at <= durable_) slab.recorded = false;
    if (!slab.recorded) {
        slab.state = State::released;
        if (slab.pins == 0) make_free(index);
        return;
    }
    slab.state = State::releasing;
    releases_.push_back({.position = slab.cleared_at, .slab = index});
}

void SlabTable::wipe(SlabIndex index) {
    Slab& slab = slabs_[index];
    index_remove(index);
    const auto volume = volumes_.find(slab.volume);
    if (--volume->second == 0) volumes_.erase(volume);
    present_count_ -= slab.present.count();
    slab = Slab{};
}

void SlabTable::make_free(SlabIndex index) {
    wipe(index);
    free_.push_back(index);
}

PageEntry SlabTable::entry(SlabIndex index, uint64_t page) const {
    const Entries& entries = *slabs_[index].entries;
    return {.tenure = entries.tenures[page], .checksum = entries.checksums[page]};
}

void SlabTable::prefetch_entry(SlabIndex index, uint64_t page) const {
    const Entries& entries = *slabs_[index].entries;
    __builtin_prefetch(&entries.tenures[page]);
    __builtin_prefetch(&entries.checksums[page]);
}

void SlabTable::set_present(SlabIndex index, uint64_t page) {
    Slab& slab = slabs_[index];
    take_up(index);
    slab.reserved.reset(page);
    if (!slab.present[page]) ++present_count_;
    slab.present.set(page);
    slab.recorded = true;
}

void SlabTable::set_in_place(SlabIndex index, uint64_t page, const PageEntry& entry) {
    set_present(index, page);
    Slab& slab = slabs_[index];
    slab.in_place.set(page);
    slab.entries->tenures[page] = entry.tenure;
    slab.entries->checksums[page] = entry.checksum;
}

bool SlabTable::clear_matters(SlabIndex index, uint64_t first, uint64_t count, Cleared then) const {
    const Slab& slab = slabs_[index];
    const bool keep = then == Cleared::kept;
    if (keep ? !slab.kept : slab.kept) return true;
    // Also which pages are kept: when the others are given back, a restart must find that the slab is still needed.
    for (uint64_t page = first; page < first + count; ++page)
        if (slab.present[page] || (keep && !slab.reserved[page])) return true;
    return false;
}

bool SlabTable::clear_releases(SlabIndex index, uint64_t first, uint64_t count, Cleared then) const {
    if (then == Cleared::kept) return false;
    for (uint64_t page = 0; page < pages_per_slab; ++page) {
        const bool is_cleared = page >= first && page < first + count;
        if (!is_cleared && slabs_[index].present[page]) return false;
        if ((!is_cleared || then == Cleared::as_reserved) && slabs_[index].reserved[page]) return false;
    }
    return true;
}

void SlabTable::clear(SlabIndex index, uint64_t first, uint64_t count, Cleared then, uint64_t position) {
    TARN_ASSERT(first + count <= pages_per_slab);
    Slab& slab = slabs_[index];
    const bool releases = clear_releases(index, first, count, then);
    if (then == Cleared::kept) {
        take_up(index);
        slab.kept = true;
        slab.recorded = true;
    }
    for (uint64_t page = first; page < first + count; ++page) {
        if (slab.present[page]) --present_count_;
        slab.present.reset(page);
        slab.in_place.reset(page);
        if (then != Cleared::as_reserved) slab.reserved[page] = then == Cleared::kept;
    }
    slab.cleared_at = std::max(slab.cleared_at, position);
    if (releases) slab.kept = false;
    release_if_empty(index);
}

void SlabTable::unpin(SlabIndex index) {
    Slab& slab = slabs_[index];
    TARN_ASSERT(slab.pins > 0);
    if (--slab.pins == 0 && slab.state == State::released) make_free(index);
}

void SlabTable::records_are_durable(uint64_t position) {
    durable_ = position;
    while (!releases_.empty() && releases_.front().position <= position) {
        const Release release = releases_.front();
        releases_.pop_front();
        Slab& slab = slabs_[release.slab];
        // Taken up again meanwhile; or cleared again, and then that release stands further back.
        if (slab.state != State::releasing || slab.cleared_at != release.position) continue;
        slab.state = State::released;
        if (slab.pins == 0) make_free(release.slab);
    }
}

std::optional<PageId> SlabTable::first_page(SlabIndex slab) const {
    if (slabs_[slab].state == State::free) return std::nullopt;
    return PageId::of(slabs_[slab].volume, slabs_[slab].number * pages_per_slab);
}

}  // namespace tarn
