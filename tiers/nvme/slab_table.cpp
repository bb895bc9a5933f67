#include "tiers/nvme/slab_table.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tiers/nvme/checksum.hpp"
#include "utils/assert.hpp"

namespace tarn {

SlabTable::SlabTable(const Uuid& store, uint64_t slab_count)
    : store_(store),
      slabs_(slab_count),
      blocks_(StoreLayout::of(slab_count).table_block_count),
      index_(std::bit_ceil(slab_count * 2)) {
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

Result<SlabIndex> SlabTable::allocate(VolumeId volume, uint64_t number) {
    if (free_.empty()) return fail(Errc::no_space, 0, "store.allocate");
    const SlabIndex index = free_.back();
    free_.pop_back();
    TARN_ASSERT(slabs_[index].state == State::free && slabs_[index].pins == 0);
    slabs_[index] = Slab{.volume = volume, .number = static_cast<uint32_t>(number), .state = State::used};
    ++volumes_[volume];
    index_insert(index);
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
    if (!present(index, page_in_slab(page))) slabs_[index].reserved.add(page_in_slab(page));
    return index;
}

void SlabTable::unreserve(SlabIndex index, uint64_t page) {
    slabs_[index].reserved.remove(page);
    release_if_empty(index);
}

// An empty slab gets a page again before it could be freed.
void SlabTable::take_up(SlabIndex index) {
    Slab& slab = slabs_[index];
    TARN_ASSERT(slab.state != State::free);
    if (slab.state == State::releasing) --releasing_count_;
    slab.state = State::used;
}

void SlabTable::release_if_empty(SlabIndex index) {
    Slab& slab = slabs_[index];
    if (slab.state != State::used || !slab.present.empty() || !slab.reserved.empty()) return;
    slab.state = State::releasing;
    slab.kept = false;
    ++releasing_count_;
    mark_changed(index);
}

void SlabTable::make_free(SlabIndex index) {
    Slab& slab = slabs_[index];
    index_remove(index);
    const auto volume = volumes_.find(slab.volume);
    if (--volume->second == 0) volumes_.erase(volume);
    slab = Slab{};
    free_.push_back(index);
}

void SlabTable::mark_changed(SlabIndex slab) {
    const auto block = static_cast<uint32_t>(slab / slab_entries_per_block);
    if (blocks_[block].changed) return;
    blocks_[block].changed = true;
    changed_.push_back(block);
}

void SlabTable::set_present(SlabIndex index, uint64_t page) {
    Slab& slab = slabs_[index];
    take_up(index);
    slab.reserved.remove(page);
    if (slab.present.has(page)) return;
    slab.present.add(page);
    mark_changed(index);
}

void SlabTable::clear(SlabIndex index, uint64_t first, uint64_t count, bool keep) {
    TARN_ASSERT(first + count <= pages_per_slab);
    Slab& slab = slabs_[index];
    bool changed = keep && !slab.kept;
    if (keep) {
        take_up(index);
        slab.kept = true;
    }
    for (uint64_t page = first; page < first + count; ++page) {
        changed |= slab.present.has(page);
        slab.present.remove(page);
        if (keep)
            slab.reserved.add(page);
        else
            slab.reserved.remove(page);
    }
    if (changed) mark_changed(index);
    release_if_empty(index);
}

void SlabTable::unpin(SlabIndex index) {
    Slab& slab = slabs_[index];
    TARN_ASSERT(slab.pins > 0);
    if (--slab.pins == 0 && slab.state == State::released) make_free(index);
}

void SlabTable::changes_are_durable(const Changes& changes) {
    for (const Changes::Block& block : changes.blocks)
        blocks_[block.index].newest_place = static_cast<uint8_t>(block.place);
    for (const SlabIndex index : changes.released) {
        Slab& slab = slabs_[index];
        if (slab.state != State::releasing) continue;  // taken up again meanwhile
        --releasing_count_;
        slab.state = State::released;
        if (slab.pins == 0) make_free(index);
    }
}

}  // namespace tarn
