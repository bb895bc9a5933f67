// The slab table as it lies on the device: entries, their checks, and which of two places holds the newer ones.
#include <algorithm>
#include <cstring>

#include "tiers/nvme/checksum.hpp"
#include "tiers/nvme/slab_table.hpp"
#include "utils/assert.hpp"

namespace tarn {

namespace {

enum class EntryState : uint32_t { free = 1, used = 2 };  // zero is neither: a zeroed entry is a bad one

// Grows by one at each flush; far from its end in any device's life.
constexpr uint64_t sequence_max = uint64_t{1} << 62;

}  // namespace

struct SlabTable::Entry {
    EntryState state = EntryState::free;
    VolumeId volume = 0;
    uint32_t number = 0;
    uint32_t reserved = 0;
    uint64_t sequence = 0;
    std::array<uint64_t, pages_per_slab / 64> present{};
    uint32_t reserved_too = 0;
    uint32_t checksum = 0;  // of the store's id, the entry's position and all fields before

    static uint32_t checksum_of(const Entry& entry, const Uuid& store, uint64_t slab, uint32_t place) {
        const std::array<uint64_t, 2> position = {slab, place};
        const uint32_t seed = crc32c(std::as_bytes(std::span(position)), crc32c(std::as_bytes(std::span(store))));
        return crc32c(std::as_bytes(std::span(&entry, 1)).first(offsetof(Entry, checksum)), seed);
    }
};
static_assert(pages_per_slab == 256, "the presence bits of an entry are 32 bytes");

namespace {

template <class Entry>
void put_entry(Entry entry, const Uuid& store, uint64_t block, uint64_t i, uint32_t place, BlockBytes into) {
    static_assert(sizeof(Entry) == slab_entry_size && std::has_unique_object_representations_v<Entry>);
    entry.checksum = Entry::checksum_of(entry, store, block * slab_entries_per_block + i, place);
    std::memcpy(into.data() + i * sizeof entry, &entry, sizeof entry);
}

template <class Entry>
std::optional<Entry> take_entry(const Uuid& store, uint64_t block, uint64_t i, uint32_t place, ConstBlockBytes from) {
    Entry entry;
    std::memcpy(&entry, from.data() + i * sizeof entry, sizeof entry);
    if (entry.checksum != Entry::checksum_of(entry, store, block * slab_entries_per_block + i, place)) return {};
    return entry;
}

}  // namespace

void SlabTable::encode_empty_block(const Uuid& store, uint64_t block, uint32_t place, BlockBytes into) {
    for (uint64_t i = 0; i < slab_entries_per_block; ++i) put_entry(Entry{.sequence = 1}, store, block, i, place, into);
}

void SlabTable::encode_block(uint32_t block, uint32_t place, uint64_t sequence, BlockBytes into) const {
    for (uint64_t i = 0; i < slab_entries_per_block; ++i) {
        Entry entry{.sequence = sequence};
        const uint64_t index = block * slab_entries_per_block + i;
        // A slab with reservations only is free on the device: what was reserved does not outlive the process.
        if (index < slabs_.size() && slabs_[index].state == State::used &&
            (slabs_[index].kept || !slabs_[index].present.empty())) {
            entry.state = EntryState::used;
            entry.volume = slabs_[index].volume;
            entry.number = slabs_[index].number;
            entry.present = slabs_[index].present.words();
        }
        put_entry(entry, store_, block, i, place, into);
    }
}

SlabTable::Changes SlabTable::encode_changes(std::span<std::byte> bytes) {
    Changes changes;
    const size_t count = std::min(changed_.size(), bytes.size() / page_size);
    if (count == 0) return changes;
    ++sequence_;
    for (size_t i = 0; i < count; ++i) {
        const uint32_t block = changed_[i];
        const uint32_t place = 1u - blocks_[block].newest_place;
        encode_block(block, place, sequence_, BlockBytes(bytes.data() + i * page_size, page_size));
        blocks_[block].changed = false;
        changes.blocks.push_back({.index = block, .place = place});
        const uint64_t first = block * slab_entries_per_block;
        for (uint64_t slab = first; slab < std::min(first + slab_entries_per_block, slabs_.size()); ++slab)
            if (slabs_[slab].state == State::releasing) changes.released.push_back(static_cast<SlabIndex>(slab));
    }
    changed_.erase(changed_.begin(), changed_.begin() + static_cast<ptrdiff_t>(count));
    return changes;
}

Result<> SlabTable::load_block(uint64_t block, ConstBlockBytes first_place, ConstBlockBytes second_place) {
    const std::array<ConstBlockBytes, 2> places = {first_place, second_place};
    std::array<std::array<std::optional<Entry>, slab_entries_per_block>, 2> entries;
    std::array<uint64_t, 2> newest = {0, 0};
    for (uint32_t place = 0; place < 2; ++place) {
        for (uint64_t i = 0; i < slab_entries_per_block; ++i) {
            entries[place][i] = take_entry<Entry>(store_, block, i, place, places[place]);
            if (entries[place][i]) newest[place] = std::max(newest[place], entries[place][i]->sequence);
        }
        if (newest[place] == 0) return fail(Errc::corrupt, 0, "store.slab_table: a block has no good entry");
    }
    sequence_ = std::max({sequence_, newest[0], newest[1]});
    if (sequence_ >= sequence_max) return fail(Errc::corrupt, 0, "store.slab_table: sequence out of range");

    const uint32_t newer = newest[1] > newest[0] ? 1 : 0;
    bool newer_is_complete = true;
    for (uint64_t i = 0; i < slab_entries_per_block; ++i) {
        if (!entries[0][i] && !entries[1][i]) return fail(Errc::corrupt, 0, "store.slab_table: both copies are bad");
        if (!entries[newer][i]) {
            // Torn by a power cut if nothing was written after it; else it had been durable, and rotted.
            if (torn_ && torn_sequence_ != newest[newer])
                return fail(Errc::corrupt, 0, "store.slab_table: an entry has a wrong checksum");
            torn_ = true;
            torn_sequence_ = newest[newer];
        }
        const bool take_newer = entries[newer][i] && (!entries[1 - newer][i] ||
                                                      entries[newer][i]->sequence >= entries[1 - newer][i]->sequence);
        newer_is_complete &= take_newer;
        const Entry& entry = *entries[take_newer ? newer : 1 - newer][i];
        if (entry.state == EntryState::free) continue;
        const uint64_t index = block * slab_entries_per_block + i;
        if (entry.state != EntryState::used || index >= slabs_.size() || entry.volume > volume_id_max)
            return fail(Errc::corrupt, 0, "store.slab_table: an entry makes no sense");
        if (find(entry.volume, entry.number))
            return fail(Errc::corrupt, 0, "store.slab_table: two slabs for one place of a volume");
        Slab& slab = slabs_[index];
        slab = Slab{.volume = entry.volume, .number = entry.number, .state = State::used};
        slab.present.set_words(entry.present);
        if (slab.present.empty()) {
            slab.kept = true;
            slab.reserved.set_words({UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX});
        }
        ++volumes_[entry.volume];
        index_insert(static_cast<SlabIndex>(index));
    }
    // A torn block is written again, over its torn place: the other one alone has what the tear left out.
    blocks_[block].newest_place = static_cast<uint8_t>(newer_is_complete ? newer : 1 - newer);
    if (!newer_is_complete) mark_changed(static_cast<SlabIndex>(block * slab_entries_per_block));
    return {};
}

Result<> SlabTable::finish_load() {
    if (torn_ && torn_sequence_ != sequence_)
        return fail(Errc::corrupt, 0, "store.slab_table: an entry has a wrong checksum");
    std::erase_if(free_, [this](SlabIndex slab) { return slabs_[slab].state != State::free; });
    return {};
}

}  // namespace tarn
