// RecordTable: PageId → record, open addressing with linear probing.
//
// The slots are small and point to the records, so that a sparse table costs little. References stay valid until the
// record is erased or reserve() is called; insertion moves nothing. The order of a walk depends only on the history of
// the table, so that equal runs walk equally.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tiers/page.hpp"
#include "utils/assert.hpp"

namespace tarn::protocol {

template <class T>
class RecordTable {
  public:
    // At least this many records can be inserted afterwards without moving any.
    void reserve(size_t free_count) {
        while (free_records_.size() < free_count) {
            free_records_.push_back(static_cast<uint32_t>(records_.size()));
            records_.emplace_back();
            free_records_.reserve(records_.capacity());  // erase() must not allocate
        }
        if ((used_ + free_count) * 2 <= slots_.size()) return;
        std::vector<Slot> old(std::bit_ceil((used_ + free_count) * 4));
        old.swap(slots_);
        for (const Slot& slot : old)
            if (slot.page != nobody) slots_[slot_of(slot.page)] = slot;
    }
    // Call it before the first record: reserves room for `count` records, so that no step has to move the table.
    void expect(size_t count) {
        TARN_ASSERT(used_ == 0);
        records_.reserve(count);
        free_records_.reserve(count);
        slots_.assign(std::max(slots_.size(), std::bit_ceil(count * 2)), Slot{});
        reserve(count);
    }
    size_t size() const { return used_; }

    T* find(PageId page) {
        if (slots_.empty()) return nullptr;
        const Slot& slot = slots_[slot_of(page)];
        return slot.page == page ? &records_[slot.record] : nullptr;
    }
    const T* find(PageId page) const { return const_cast<RecordTable*>(this)->find(page); }

    // Call it ahead of find or insert: most pages are requested long after they were last touched.
    void prefetch(PageId page) const {
        if (!slots_.empty()) __builtin_prefetch(&slots_[mix64(page.value) & (slots_.size() - 1)]);
    }
    // The record itself, once its slot is in the cache.
    void prefetch_record(PageId page) const {
        if (slots_.empty()) return;
        const Slot& slot = slots_[slot_of(page)];
        if (slot.page != page) return;
        const auto* const bytes = reinterpret_cast<const std::byte*>(&records_[slot.record]);
        for (size_t offset = 0; offset < sizeof(T); offset += 64) __builtin_prefetch(bytes + offset);
    }

    T& insert(PageId page) {
        TARN_ASSERT(!free_records_.empty() && page != nobody);
        Slot& slot = slots_[slot_of(page)];
        TARN_ASSERT(slot.page == nobody);
        slot = {page, free_records_.back()};
        free_records_.pop_back();
        ++used_;
        return records_[slot.record] = T{};
    }

    void erase(PageId page) {
        size_t hole = slot_of(page);
        TARN_ASSERT(slots_[hole].page == page);
        free_records_.push_back(slots_[hole].record);
        // Close the gap: entries that probed past the hole move into it.
        for (size_t next = step(hole); slots_[next].page != nobody; next = step(next)) {
            const size_t wanted = mix64(slots_[next].page.value) & (slots_.size() - 1);
            const bool between = hole <= next ? hole < wanted && wanted <= next : hole < wanted || wanted <= next;
            if (between) continue;
            slots_[hole] = slots_[next];
            hole = next;
        }
        slots_[hole] = {};
        --used_;
    }

    // The visitor must neither insert nor erase.
    template <class Visitor>
    void for_each(Visitor&& visit) const {
        for (const Slot& slot : slots_)
            if (slot.page != nobody) visit(slot.page, records_[slot.record]);
    }

  private:
    static constexpr PageId nobody{~uint64_t{0}};
    struct Slot {
        PageId page = nobody;
        uint32_t record = 0;
    };

    size_t step(size_t index) const { return (index + 1) & (slots_.size() - 1); }
    size_t slot_of(PageId page) const {
        size_t index = mix64(page.value) & (slots_.size() - 1);
        while (slots_[index].page != nobody && slots_[index].page != page) index = step(index);
        return index;
    }

    std::vector<Slot> slots_;
    std::vector<T> records_;
    std::vector<uint32_t> free_records_;
    size_t used_ = 0;
};

}  // namespace tarn::protocol
