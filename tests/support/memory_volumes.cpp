#include "tests/support/memory_volumes.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include "utils/assert.hpp"
#include "utils/clock.hpp"
#include "utils/interrupt.hpp"
#include "utils/loop.hpp"

namespace tarn {

namespace {

constexpr uint32_t writing = 1u << 31;
constexpr uint32_t stored = 1u << 30;
constexpr uint64_t pages_max = MemoryVolume::stored_size_max / page_size;

Mapping map(size_t size_bytes) {
    Result<Mapping> mapping = Mapping::create(size_bytes);
    TARN_ASSERT(mapping);
    ::madvise(mapping->bytes().data(), size_bytes, MADV_HUGEPAGE);
    return std::move(*mapping);
}

class Word {
  public:
    Word(const Mapping& words, uint64_t page) : word_(reinterpret_cast<uint32_t*>(words.bytes().data())[page]) {}

    bool is_stored() const { return (word_.load(std::memory_order_relaxed) & stored) != 0; }
    void pin() {
        while ((word_.fetch_add(1, std::memory_order_acquire) & writing) != 0) {
            word_.fetch_sub(1, std::memory_order_relaxed);
            std::this_thread::yield();
        }
    }
    void unpin() { word_.fetch_sub(1, std::memory_order_release); }
    // False while the page is pinned: waiting for a pin of one's own thread would never end.
    bool try_begin_write() {
        uint32_t value = word_.load(std::memory_order_relaxed) & stored;
        return word_.compare_exchange_strong(value, value | writing, std::memory_order_acquire);
    }
    void begin_write() {
        while (!try_begin_write()) std::this_thread::yield();
    }
    void abandon_write() { word_.fetch_and(~writing, std::memory_order_release); }
    // A pin that comes and goes may be counted meanwhile.
    void end_write(bool is_stored_now) {
        if (is_stored_now)
            word_.fetch_or(stored, std::memory_order_relaxed);
        else
            word_.fetch_and(~stored, std::memory_order_relaxed);
        word_.fetch_and(~writing, std::memory_order_release);
    }

  private:
    std::atomic_ref<uint32_t> word_;
};

// Calls visit(page, offset in page, size) for each page of the range.
template <class Visit>
void for_each_page(uint64_t offset_bytes, uint64_t size_bytes, Visit visit) {
    while (size_bytes > 0) {
        const uint64_t in_page = offset_bytes % page_size;
        const uint64_t part = std::min(size_bytes, page_size - in_page);
        visit(offset_bytes / page_size, in_page, part);
        offset_bytes += part;
        size_bytes -= part;
    }
}

bool storable(uint64_t offset_bytes, uint64_t size_bytes) {
    return offset_bytes <= MemoryVolume::stored_size_max && size_bytes <= MemoryVolume::stored_size_max - offset_bytes;
}

}  // namespace

MemoryVolume::MemoryVolume(VolumeId id, Attributes attributes, MemoryFaults& faults)
    : id_(id),
      faults_(faults),
      data_(map(stored_size_max)),
      words_(map(pages_max * sizeof(uint32_t))),
      attributes_(attributes) {}

bool MemoryVolume::misses() {
    thread_local unsigned count = 0;
    const unsigned every = faults_.miss_every.load(std::memory_order_relaxed);
    return every > 0 && ++count % every == 0;
}

Task<> MemoryVolume::delay() {
    const unsigned delay_us = faults_.cold_delay_us.load(std::memory_order_relaxed);
    if (delay_us > 0) co_await Loop::current()->sleep(std::chrono::microseconds(delay_us));
}

Task<> MemoryVolume::delay_copy() {
    co_await delay();
    while (faults_.copies_wait && faults_.copies_wait()) co_await Yield(*Loop::current());
}

bool MemoryVolume::try_pin(uint64_t offset_bytes, uint32_t size_bytes, std::vector<Pin>& pins) {
    if (misses() || !storable(offset_bytes, size_bytes)) return false;
    for_each_page(offset_bytes, size_bytes, [&](uint64_t page, uint64_t in_page, uint64_t part) {
        Word(words_, page).pin();
        pins.push_back({data_.bytes().data() + page * page_size + in_page, static_cast<uint32_t>(part),
                        static_cast<FrameId>(page)});
    });
    return true;
}

void MemoryVolume::unpin(std::span<const Pin> pins) {
    for (const Pin& pin : pins) Word(words_, pin.frame).unpin();
}

bool MemoryVolume::try_read(uint64_t offset_bytes, std::span<std::byte> into) {
    if (misses() || !storable(offset_bytes, into.size())) return false;
    copy_out(offset_bytes, into);
    return true;
}

bool MemoryVolume::try_write(uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts) {
    if (faults_.on_write) faults_.on_write(from);
    if (misses() || !storable(offset_bytes, from.size()) || !try_copy_in(offset_bytes, from)) return false;
    if (receipts)
        for_each_page(offset_bytes, from.size(),
                      [&](uint64_t page, uint64_t, uint64_t) { receipts->add(page - offset_bytes / page_size); });
    return true;
}

void MemoryVolume::copy_out(uint64_t offset_bytes, std::span<std::byte> into) {
    std::byte* to = into.data();
    for_each_page(offset_bytes, into.size(), [&](uint64_t page, uint64_t in_page, uint64_t part) {
        Word word(words_, page);
        word.pin();
        std::memcpy(to, data_.bytes().data() + page * page_size + in_page, part);
        word.unpin();
        to += part;
    });
}

// Atomic: takes every page first.
bool MemoryVolume::try_copy_in(uint64_t offset_bytes, std::span<const std::byte> from) {
    uint64_t taken_bytes = 0;
    bool pinned = false;
    for_each_page(offset_bytes, from.size(), [&](uint64_t page, uint64_t, uint64_t part) {
        pinned = pinned || !Word(words_, page).try_begin_write();
        if (!pinned) taken_bytes += part;
    });
    if (pinned) {
        for_each_page(offset_bytes, taken_bytes,
                      [&](uint64_t page, uint64_t, uint64_t) { Word(words_, page).abandon_write(); });
        return false;
    }
    const std::byte* source = from.data();
    for_each_page(offset_bytes, from.size(), [&](uint64_t page, uint64_t in_page, uint64_t part) {
        std::memcpy(data_.bytes().data() + page * page_size + in_page, source, part);
        Word(words_, page).end_write(true);
        source += part;
    });
    return true;
}

void MemoryVolume::zero_range(uint64_t offset_bytes, uint64_t size_bytes, bool keep_space) {
    if (offset_bytes >= stored_size_max) return;
    size_bytes = std::min(size_bytes, stored_size_max - offset_bytes);
    for_each_page(offset_bytes, size_bytes, [&](uint64_t page, uint64_t in_page, uint64_t part) {
        Word word(words_, page);
        const bool was_stored = word.is_stored();
        if (!was_stored && !keep_space) return;
        word.begin_write();
        if (was_stored) std::memset(data_.bytes().data() + page * page_size + in_page, 0, part);
        word.end_write(keep_space || part < page_size);
    });
}

Task<Result<>> MemoryVolume::read(uint64_t offset_bytes, std::span<std::byte> into) {
    co_await delay_copy();
    if (faults_.copies_cancelled) co_return fail(Errc::cancelled, 0, "memory.read");
    if (faults_.failing_read > 0 && --faults_.failing_read == 0) co_return fail(Errc::io, 0, "memory.read");
    if (storable(offset_bytes, into.size()))
        copy_out(offset_bytes, into);
    else
        std::ranges::fill(into, std::byte{0});
    co_return Result<>{};
}

Task<Result<>> MemoryVolume::fetch(uint64_t, uint64_t) {
    co_await delay();
    co_return Result<>{};
}

Task<Result<>> MemoryVolume::write(uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts) {
    co_await delay_copy();
    if (faults_.copies_cancelled) co_return fail(Errc::cancelled, 0, "memory.write");
    if (faults_.failing_write > 0 && --faults_.failing_write == 0) co_return fail(Errc::io, 0, "memory.write");
    if (!storable(offset_bytes, from.size())) co_return fail(Errc::no_space, 0, "memory.write");
    const uint64_t first = offset_bytes / page_size;
    for (uint64_t done = 0; done < from.size();) {
        const uint64_t at = offset_bytes + done;
        const uint64_t size = std::min(page_size - at % page_size, from.size() - done);
        const uint64_t page = at / page_size - first;
        if (!receipts || !receipts->has(page))
            while (!try_copy_in(at, from.subspan(done, size))) co_await Yield(*Loop::current());
        if (receipts) receipts->add(page);
        done += size;
    }
    co_return Result<>{};
}

Task<Result<>> MemoryVolume::zero(uint64_t offset_bytes, uint64_t size_bytes, bool keep_space, WriteReceipts*) {
    co_await delay();
    if (keep_space && !storable(offset_bytes, size_bytes)) co_return fail(Errc::no_space, 0, "memory.zero");
    zero_range(offset_bytes, size_bytes, keep_space);
    co_return Result<>{};
}

Task<Result<>> MemoryVolume::flush() {
    co_await delay();
    ++faults_.flush_count;
    if (faults_.failing_flushes > 0) {
        --faults_.failing_flushes;
        co_return session()->flushed(fail(Errc::io, 0, "memory.flush"));
    }
    co_return session()->flushed({});
}

Task<Result<>> MemoryVolume::prefetch(uint64_t, uint64_t) {
    co_await delay();
    co_return Result<>{};
}

Task<Result<std::vector<Extent>>> MemoryVolume::extents(uint64_t offset_bytes, uint64_t size_bytes) {
    co_await delay();
    std::vector<Extent> extents;
    for_each_page(offset_bytes, size_bytes, [&](uint64_t page, uint64_t in_page, uint64_t part) {
        const bool hole = page >= pages_max || !Word(words_, page).is_stored();
        if (!extents.empty() && extents.back().hole == hole)
            extents.back().size_bytes += part;
        else
            extents.push_back({page * page_size + in_page, part, hole});
    });
    co_return extents;
}

std::vector<TierExtent> MemoryVolume::tiers(std::span<const Extent> extents) {
    std::vector<TierExtent> tiers;
    for (const Extent& extent : extents)
        tiers.push_back({extent.offset_bytes, extent.size_bytes, extent.hole ? Tier::hole : Tier::dram});
    return tiers;
}

Attributes MemoryVolume::attributes_now() {
    const std::lock_guard lock(attributes_mutex_);
    return attributes_;
}

std::optional<Attributes> MemoryVolume::try_attributes() {
    if (misses() || faults_.attributes_lost) return std::nullopt;
    return attributes_now();
}

Task<Result<Attributes>> MemoryVolume::attributes() {
    if (faults_.attributes_lost) co_return fail(Errc::io, 0, "test: the attributes are lost");
    co_return attributes_now();
}

std::optional<uint64_t> MemoryVolume::try_size() {
    if (misses() || (faults_.size_waits && faults_.size_waits())) return std::nullopt;
    return attributes_now().size_bytes;
}

Task<Result<uint64_t>> MemoryVolume::size() {
    const Interrupt* const interrupt = co_await this_interrupt;
    while (faults_.size_waits && faults_.size_waits()) {
        if (interrupt && interrupt->raised()) co_return fail(Errc::cancelled);
        co_await Yield(*Loop::current());
    }
    co_return attributes_now().size_bytes;
}

Task<Result<Attributes>> MemoryVolume::change_attributes(AttributeChange change) {
    const std::lock_guard lock(attributes_mutex_);
    attributes_.changed_ns = realtime_ns();
    if (change.size_bytes) {
        if (*change.size_bytes < attributes_.size_bytes)
            zero_range(*change.size_bytes, attributes_.size_bytes - *change.size_bytes, false);
        attributes_.size_bytes = *change.size_bytes;
        attributes_.modified_ns = attributes_.changed_ns;
    }
    if (change.modified_ns) attributes_.modified_ns = *change.modified_ns;
    if (change.mode) attributes_.mode = *change.mode;
    if (change.user) attributes_.user = *change.user;
    if (change.group) attributes_.group = *change.group;
    co_return attributes_;
}

void MemoryVolume::grow_to(uint64_t size_bytes) {
    attributes_.size_bytes = std::max(attributes_.size_bytes, size_bytes);
    attributes_.modified_ns = attributes_.changed_ns = realtime_ns();
}

Task<Result<>> MemoryVolume::write_growing(uint64_t offset_bytes, std::span<const std::byte> from) {
    CO_TRY_VOID(co_await write(offset_bytes, from));
    const std::lock_guard lock(attributes_mutex_);
    grow_to(offset_bytes + from.size());
    co_return Result<>{};
}

Task<Result<uint64_t>> MemoryVolume::append(std::span<const std::byte> from) {
    co_await delay();
    const std::lock_guard lock(attributes_mutex_);
    const uint64_t offset_bytes = attributes_.size_bytes;
    if (!storable(offset_bytes, from.size())) co_return fail(Errc::no_space, 0, "memory.append");
    while (!try_copy_in(offset_bytes, from)) std::this_thread::yield();
    grow_to(offset_bytes + from.size());
    co_return offset_bytes;
}

VolumeEntry MemoryVolumes::describe(const std::string& name, const Entry& entry, Attributes attributes) const {
    const bool held = held_elsewhere_.contains(name);
    return {.name = name,
            .id = entry.volume->id(),
            .shared = entry.shared,
            .holder = held ? "elsewhere" : "",
            .attributes = attributes};
}

Task<Result<std::vector<VolumeEntry>>> MemoryVolumes::list() {
    std::vector<VolumeEntry> list;
    ++lists;
    const std::lock_guard lock(mutex_);
    for (const auto& [name, entry] : entries_) {
        list.push_back(describe(name, entry, entry.volume->attributes_now()));
    }
    co_return list;
}

Task<Result<VolumeEntry>> MemoryVolumes::find(std::string name) {
    const std::lock_guard lock(mutex_);
    sought_.insert(name);
    const auto found = entries_.find(name);
    if (found == entries_.end()) co_return fail(Errc::not_found, 0, "memory.find");
    co_return describe(name, found->second, found->second.volume->attributes_now());
}

Task<Result<std::shared_ptr<Volume>>> MemoryVolumes::open(std::string name, Access access,
                                                          std::shared_ptr<VolumeSession>,
                                                          std::shared_ptr<SessionRecord> record) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(name);
    if (found == entries_.end()) co_return fail(Errc::not_found, 0, "memory.open");
    if (access == Access::write && held_elsewhere_.contains(name)) co_return fail(Errc::busy, 0, "memory.open");
    if (record) found->second.volume->record_session(std::move(record));
    co_return std::shared_ptr<Volume>(found->second.volume);
}

void MemoryVolume::record_session(std::shared_ptr<SessionRecord> record) {
    struct Recorded final : VolumeSession {
        explicit Recorded(std::shared_ptr<SessionRecord> in) : VolumeSession(std::move(in)) {}
    };
    const std::lock_guard lock(session_mutex_);
    if (!session_->record) session_ = std::make_shared<Recorded>(std::move(record));
}

Task<Result<VolumeEntry>> MemoryVolumes::create(std::string name, bool shared, Attributes attributes) {
    const std::lock_guard lock(mutex_);
    if (entries_.contains(name)) co_return fail(Errc::exists, 0, "memory.create");
    for (const auto& [other, entry] : entries_)
        if (names_collide(other, name)) co_return fail(Errc::exists, 0, "memory.create: names collide");
    attributes.modified_ns = attributes.changed_ns = realtime_ns();
    Entry& entry = entries_[name];
    entry = {shared, std::make_shared<MemoryVolume>(++last_id_, attributes, faults)};
    co_return describe(name, entry, attributes);
}

// Clients that have it open can go on using it.
Task<Result<Removal>> MemoryVolumes::remove(std::string name, bool) {
    const std::lock_guard lock(mutex_);
    if (entries_.erase(name) == 0) co_return fail(Errc::not_found, 0, "memory.remove");
    co_return Removal{};
}

Task<Result<Space>> MemoryVolumes::space() {
    co_return Space{.total_bytes = MemoryVolume::stored_size_max,
                    .free_bytes = MemoryVolume::stored_size_max / 2,
                    .silent_hosts = {},
                    .untold_hosts = {}};
}

std::shared_ptr<MemoryVolume> MemoryVolumes::add(const std::string& name, uint64_t size_bytes, bool shared) {
    const std::lock_guard lock(mutex_);
    Attributes attributes;
    attributes.size_bytes = size_bytes;
    attributes.modified_ns = attributes.changed_ns = realtime_ns();
    auto volume = std::make_shared<MemoryVolume>(++last_id_, attributes, faults);
    entries_[name] = {shared, volume};
    return volume;
}

void MemoryVolumes::hold_elsewhere(const std::string& name) {
    const std::lock_guard lock(mutex_);
    held_elsewhere_.insert(name);
}

}  // namespace tarn
