#include "tests/sim/hosts/record_log.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tarn::hosts_sim {

std::vector<RecordLog::Slot> RecordLog::slots_of(uint64_t append, size_t count) {
    std::vector<Slot> slots;
    for (size_t i = 0; i < count; ++i) {
        slots.push_back({.append = append, .index = i, .rest = {}});
        slots.back().rest.fill(append);
    }
    return slots;
}

uint64_t RecordLog::begin_append(size_t slot_count, uint64_t now) {
    slots_appended_ += slot_count;
    appends_.push_back({.slot_count = slot_count, .invoked = now});
    return appends_.size();
}

void RecordLog::end_append(uint64_t append, uint64_t offset_bytes, uint64_t now) {
    appends_[append - 1].offset_bytes = offset_bytes;
    appends_[append - 1].ended = now;
}

uint64_t RecordLog::begin_cut(uint64_t size_bytes, uint64_t now) {
    cuts_.push_back({.size_bytes = size_bytes, .invoked = now});
    return cuts_.size() - 1;
}

void RecordLog::end_cut(uint64_t cut, uint64_t now) {
    cuts_[cut].ended = now;
}

bool RecordLog::may_be_gone(const Append& append, const std::vector<checker::Loss>& losses) const {
    if (append.ended == checker::never) return true;
    const uint64_t end = append.offset_bytes + append.slot_count * sizeof(Slot);
    for (const Cut& cut : cuts_)
        if (cut.size_bytes < end && cut.ended > append.invoked) return true;
    for (const checker::Loss& loss : losses) {
        const auto covers = [&](const checker::Flush& flush) {
            return flush.invoked > append.ended && flush.ended < loss.begun;
        };
        if (loss.ended > append.invoked && std::ranges::none_of(flushes_, covers)) return true;
    }
    return false;
}

std::string RecordLog::check(std::span<const Slot> read, const std::vector<checker::Loss>& losses) const {
    const auto wrong = [&](size_t slot, const char* what) {
        return fmt::format("volume {} at {}: {}: append {}, its part {}", volume_, slot * sizeof(Slot), what,
                           read[slot].append, read[slot].index);
    };
    for (size_t i = 0; i < read.size(); ++i) {
        const Slot& slot = read[i];
        if (slot.append == 0) {
            // Bytes and size are stored each for itself.
            if (losses.empty()) return wrong(i, "a size without its bytes");
            continue;
        }
        if (slot.append > appends_.size() || slot.index >= appends_[slot.append - 1].slot_count)
            return wrong(i, "bytes of nobody");
        if (slot.rest != slots_of(slot.append, 1).front().rest) return wrong(i, "torn");
        const Append& append = appends_[slot.append - 1];
        if (append.ended != checker::never && append.offset_bytes / sizeof(Slot) + slot.index != i)
            return wrong(i, "at another place than it was said to be");
    }
    for (size_t number = 1; number <= appends_.size(); ++number) {
        const Append& append = appends_[number - 1];
        if (may_be_gone(append, losses)) continue;
        const size_t first = append.offset_bytes / sizeof(Slot);
        for (size_t i = 0; i < append.slot_count; ++i)
            if (first + i >= read.size() || read[first + i].append != number)
                return fmt::format("volume {}: append {} at {} is gone at its part {} of {}", volume_, number,
                                   append.offset_bytes, i, append.slot_count);
    }
    return {};
}

Task<bool> LogClient::step(CachedVolume& volume) {
    const uint64_t what = world_.random().below(100);
    if (what < 8) co_return co_await flush(volume);
    if (what < 12 && cuts_) co_return co_await cut(volume);
    if (what < 25) co_return co_await read_end(volume);
    co_return co_await append(volume);
}

Task<bool> LogClient::append(CachedVolume& volume) {
    const size_t count = world_.random().between(1, world_.random().chance(20) ? 200 : 8);
    const uint64_t number = log_.begin_append(count, world_.tick());
    const std::vector<RecordLog::Slot> slots = RecordLog::slots_of(number, count);
    const Result<uint64_t> offset = co_await volume.append(std::as_bytes(std::span(slots)));
    if (!offset || !hears()) co_return false;
    log_.end_append(number, *offset, world_.tick());
    co_return true;
}

Task<bool> LogClient::cut(CachedVolume& volume) {
    const Result<Attributes> now = co_await volume.attributes();
    if (!now) co_return false;
    const uint64_t slots = now->size_bytes / sizeof(RecordLog::Slot);
    const uint64_t size = slots / 2 + world_.random().below(slots / 2 + 1);
    const uint64_t number = log_.begin_cut(size * sizeof(RecordLog::Slot), world_.tick());
    const Result<Attributes> done = co_await volume.change_attributes({.size_bytes = size * sizeof(RecordLog::Slot)});
    if (!done || !hears()) co_return false;
    log_.end_cut(number, world_.tick());
    co_return true;
}

Task<bool> LogClient::flush(CachedVolume& volume) {
    const uint64_t invoked = world_.tick();
    if (!co_await volume.flush() || !hears()) co_return false;
    log_.note_flush({.invoked = invoked, .ended = world_.tick(), .session = session_});
    ++world_.counts.flushes;
    co_return true;
}

// Whoever sees the size sees the bytes.
Task<bool> LogClient::read_end(CachedVolume& volume) {
    const Result<Attributes> now = co_await volume.attributes();
    if (!now || now->size_bytes == 0) co_return now.has_value();
    RecordLog::Slot last{};
    const auto bytes = std::as_writable_bytes(std::span(&last, 1));
    if (!co_await volume.read(now->size_bytes - sizeof last, bytes)) co_return false;
    const Result<Attributes> then = co_await volume.attributes();
    if (!then || !hears()) co_return false;
    if (last.append == 0 && then->truncations == now->truncations && world_.losses.empty())
        world_.fail(fmt::format("volume {}: a size of {} bytes without its bytes", log_.volume(), now->size_bytes));
    co_return true;
}

Task<bool> LogClient::look(CachedVolume& volume) {
    const Result<Attributes> now = co_await volume.attributes();
    if (!now) co_return false;
    std::vector<RecordLog::Slot> slots(now->size_bytes / sizeof(RecordLog::Slot));
    if (slots.size() * sizeof(RecordLog::Slot) != now->size_bytes || slots.size() > log_.slots_appended()) {
        world_.fail(fmt::format("volume {}: a size of {} bytes", log_.volume(), now->size_bytes));
        co_return false;
    }
    if (!slots.empty() && !co_await volume.read(0, std::as_writable_bytes(std::span(slots)))) co_return false;
    if (!hears()) co_return false;
    if (const std::string wrong = log_.check(slots, world_.losses); !wrong.empty()) world_.fail(wrong);
    co_return co_await flush(volume);
}

}  // namespace tarn::hosts_sim
