#include "tests/sim/threads/memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>

namespace tarn::threads {

Memory::Memory() : slots_(slot_count) {}

void Memory::reset() {
    clocks_ = {};
    unfenced_ = {};
    fenced_ = {};
    caught_up_ = {};
    sequential_ = {};
    sequence_ = 0;
    changes_ = 0;
    ++generation_;
    location_count_ = 0;
}

Memory::Slot& Memory::slot_of(const void* address) {
    size_t at = (reinterpret_cast<uintptr_t>(address) * 0x9e3779b97f4a7c15u) >> 50;
    for (size_t looked = 0; looked < slot_count; ++looked, at = (at + 1) % slot_count)
        if (slots_[at].generation != generation_ || slots_[at].address == address) return slots_[at];
    std::abort();  // a scenario has a few hundred
}

void Memory::forget(const void* address) {
    Slot& slot = slot_of(address);
    if (slot.generation == generation_) locations_[slot.index]->stores.clear();
}

Memory::Location& Memory::location(const void* address, uint64_t value) {
    Slot& slot = slot_of(address);
    if (slot.generation != generation_) {
        slot = {.address = address, .generation = generation_, .index = location_count_++};
        if (locations_.size() < location_count_) locations_.push_back(std::make_unique<Location>());
        locations_[slot.index]->address = address;
        locations_[slot.index]->stores.clear();
    }
    Location& found = *locations_[slot.index];
    if (found.stores.empty()) {
        found.stores.push_back({.value = value});
        found.last_sequential = 0;
        for (auto& reads : found.reads) reads.clear();
    }
    return found;
}

size_t Memory::oldest_readable(unsigned thread, const Location& location, std::memory_order order) const {
    size_t oldest = order == std::memory_order_seq_cst ? location.last_sequential : 0;
    for (unsigned by = 0; by < threads_max; ++by) {
        const auto& reads = location.reads[by];
        for (size_t i = reads.size(); i-- > 0;) {
            if (!happened_before(thread, by, reads[i].time)) continue;
            oldest = std::max(oldest, reads[i].index);
            break;
        }
    }
    for (size_t i = location.stores.size(); i-- > oldest + 1;) {
        const Stored& stored = location.stores[i];
        if (happened_before(thread, stored.thread, stored.time) || stored.sequence <= caught_up_[thread]) return i;
    }
    return oldest;
}

uint64_t Memory::read(unsigned thread, Location& location, size_t index, std::memory_order order) {
    const Stored& stored = location.stores[index];
    clocks_[thread].advance(thread);
    auto& reads = location.reads[thread];
    if (reads.empty() || reads.back().index < index) reads.push_back({clocks_[thread][thread], index});
    if (acquires(order))
        clocks_[thread].join(stored.released);
    else
        unfenced_[thread].join(stored.released);
    return stored.value;
}

void Memory::write(unsigned thread, Location& location, uint64_t value, std::memory_order order, bool replaces) {
    clocks_[thread].advance(thread);
    const Stored& last = location.stores.back();
    if (last.value != value) ++changes_;
    Clock released = replaces ? last.released : Clock();
    released.join(releases(order) ? clocks_[thread] : fenced_[thread]);
    location.stores.push_back({.value = value,
                               .thread = thread,
                               .time = clocks_[thread][thread],
                               .sequence = ++sequence_,
                               .released = released});
    if (order == std::memory_order_seq_cst) location.last_sequential = location.stores.size() - 1;
}

void Memory::fence(unsigned thread, std::memory_order order) {
    if (acquires(order)) clocks_[thread].join(unfenced_[thread]);
    if (order == std::memory_order_seq_cst) {
        clocks_[thread].advance(thread);
        clocks_[thread].join(sequential_);
        sequential_.join(clocks_[thread]);
    }
    if (releases(order)) {
        clocks_[thread].advance(thread);
        fenced_[thread] = clocks_[thread];
    }
}

bool Memory::read_plain(unsigned thread, PlainAccess& access) {
    clocks_[thread].advance(thread);
    access.read[thread] = clocks_[thread][thread];
    return happened_before(thread, access.writer, access.written);
}

bool Memory::write_plain(unsigned thread, PlainAccess& access) {
    bool ordered = happened_before(thread, access.writer, access.written);
    for (unsigned by = 0; by < threads_max; ++by) ordered &= happened_before(thread, by, access.read[by]);
    clocks_[thread].advance(thread);
    access.writer = thread;
    access.written = clocks_[thread][thread];
    return ordered;
}

}  // namespace tarn::threads
