// Writing and zeroing: the sectors that changed go into the journal; runs of fresh whole pages go straight into place,
// and only what they are goes into the journal.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tiers/nvme/device/checksum.hpp"
#include "tiers/nvme/store.hpp"
#include "utils/assert.hpp"

namespace tarn {

namespace {

// Shorter ones are cheaper in the journal: one write for all that waits.
constexpr size_t fresh_run_min = 16;

ConstBlockBytes bytes_of(const PageWrite& write) {
    return ConstBlockBytes(write.bytes, page_size);
}

// The sectors of a page that are not zeros: all that must be said of one that comes after nothing.
DirtyMask nonzero_sectors(ConstBlockBytes bytes) {
    DirtyMask mask = 0;
    for (unsigned sector = 0; sector < sectors_per_page; ++sector) {
        const std::span<const std::byte> part = bytes.subspan(sector * sector_size, sector_size);
        if (part[0] != std::byte{0} || std::memcmp(part.data(), part.data() + 1, part.size() - 1) != 0)
            mask = static_cast<DirtyMask>(mask | 1u << sector);
    }
    return mask != 0 ? mask : DirtyMask{1};
}

uint64_t delta_size(DirtyMask dirty) {
    return sizeof(JournalRecord) + static_cast<uint64_t>(std::popcount(dirty)) * sector_size;
}

}  // namespace

// Gives each page its slab; all of them or none.
Result<> Store::pin_for_write(std::span<const PageWrite> pages, std::vector<SlabIndex>& slabs) {
    const std::lock_guard lock(mutex_);
    std::vector<bool> was_reserved;
    for (const PageWrite& write : pages) {
        const uint64_t page = SlabTable::page_in_slab(write.page);
        const auto known = state_.table.find(write.page.volume(), SlabTable::slab_number(write.page));
        was_reserved.push_back(known && (state_.table.reserved(*known, page) || state_.table.present(*known, page)));
        const Result<SlabIndex> slab = state_.table.reserve(write.page);
        if (!slab) {
            for (size_t i = 0; i < slabs.size(); ++i) {
                state_.table.unpin(slabs[i]);
                if (!was_reserved[i]) state_.table.unreserve(slabs[i], SlabTable::page_in_slab(pages[i].page));
            }
            slabs.clear();
            return fail(slab.error());
        }
        state_.table.pin(*slab);
        slabs.push_back(*slab);
    }
    return {};
}

Task<Result<>> Store::write(Loop& loop, std::span<const PageWrite> pages, Atomicity atomicity) {
    if (atomicity == Atomicity::group && pages.size() > group_pages_max())
        co_return fail(Errc::invalid, 0, "store.write: more pages than one atomic group may have");
    std::vector<SlabIndex> slabs;
    slabs.reserve(pages.size());
    Result<> pinned = pin_for_write(pages, slabs);
    if (!pinned) {
        const bool flush_may_help = locked([&] { return state_.table.anything_releasing(); });
        if (flush_may_help) {
            CO_TRY_VOID(co_await flush(loop));
            pinned = pin_for_write(pages, slabs);
        }
    }
    if (!pinned) co_return pinned;
    warn_of_space();
    Result<> result;
    if (atomicity == Atomicity::group)
        result = co_await write_group(loop, pages, slabs);
    else
        result = co_await write_pinned(loop, pages, slabs);
    const std::lock_guard lock(mutex_);
    for (const SlabIndex slab : slabs) state_.table.unpin(slab);
    co_return result;
}

// How many of the first pages may go straight into place: nothing that may still be needed lies there.
size_t Store::fresh_run(std::span<const PageWrite> pages, std::span<const SlabIndex> slabs) const {
    const SlabIndex slab = slabs.front();
    const std::lock_guard lock(mutex_);
    if (state_.table.in_checkpoint(slab) || state_.table.cleared_at(slab) > journal_.durable()) return 0;
    size_t count = 0;
    while (count < pages.size() && slabs[count] == slab &&
           pages[count].page.value == pages.front().page.value + count && pages[count].dirty == all_sectors &&
           !state_.table.present(slab, SlabTable::page_in_slab(pages[count].page)))
        ++count;
    return count;
}

Task<Result<>> Store::write_pinned(Loop& loop, std::span<const PageWrite> pages, std::span<const SlabIndex> slabs) {
    struct Run {
        size_t first;
        size_t count;
    };
    std::vector<Run> in_place;
    std::vector<size_t> deltas;
    Transfer transfer(Transfer::Direction::write);
    for (size_t i = 0; i < pages.size();) {
        const size_t fresh = pages.size() - i < fresh_run_min ? 0 : fresh_run(pages.subspan(i), slabs.subspan(i));
        if (fresh < fresh_run_min) {
            deltas.push_back(i++);
            continue;
        }
        in_place.push_back({.first = i, .count = fresh});
        for (const size_t end = i + fresh; i < end; ++i)
            transfer.add(device_offset(slabs[i], SlabTable::page_in_slab(pages[i].page)), pages[i].bytes, page_size);
    }
    // D6: one that failed is told of, and stays, as if it had been the flush.
    CO_TRY_VOID(note_failure(co_await transfer.run(loop, *device_)));
    for (const Run& run : in_place)
        CO_TRY_VOID(co_await append_in_place(loop, pages.subspan(run.first, run.count), slabs[run.first]));
    for (const size_t i : deltas) {
        const PageWrite& write = pages[i];
        const uint32_t checksum = page_checksum(write.page, write.tenure, bytes_of(write));
        for (;;) {
            CO_TRY_VOID(co_await wait_for_room(loop, delta_size(all_sectors)));
            const std::lock_guard lock(mutex_);
            if (!has_room(delta_size(all_sectors))) continue;
            append_delta(write, slabs[i], checksum, 0);
            break;
        }
    }
    co_return Result<>{};
}

// They are in the device's cache. The flush round that makes the record durable makes them durable, too.
Task<Result<>> Store::append_in_place(Loop& loop, std::span<const PageWrite> pages, SlabIndex slab) {
    JournalRecord record{.kind = RecordKind::in_place,
                         .slab = slab,
                         .page = pages.front().page,
                         .count = static_cast<uint32_t>(pages.size())};
    std::vector<InPlaceEntry> entries(record.payload_size() / sizeof(InPlaceEntry));
    for (size_t i = 0; i < pages.size(); ++i)
        entries[i] = {.tenure = pages[i].tenure,
                      .checksum = page_checksum(pages[i].page, pages[i].tenure, bytes_of(pages[i]))};
    const uint64_t size = sizeof record + record.payload_size();
    for (;;) {
        CO_TRY_VOID(co_await wait_for_room(loop, size));
        const std::lock_guard lock(mutex_);
        if (!has_room(size)) continue;
        const std::span<const std::byte> payload = std::as_bytes(std::span(entries));
        append_change(record, std::span(&payload, 1));
        state_.on_in_place(record, entries, journal_.head());
        in_place_unflushed_ = true;
        co_return Result<>{};
    }
}

// Under the lock, when there is room. What somebody changed, and not what a checkpoint has to say.
uint64_t Store::append_change(const JournalRecord& record, std::span<const std::span<const std::byte>> payload) {
    if (std::exchange(catching_up_, false)) writes_again_.announce();
    ++counts_.changes;
    return journal_.append(record, payload);
}

// Under the lock, when there is room.
void Store::append_delta(const PageWrite& write, SlabIndex slab, uint32_t checksum, uint32_t group_left) {
    JournalRecord record{.kind = RecordKind::delta,
                         .dirty = write.dirty,
                         .slab = slab,
                         .page = write.page,
                         .tenure = write.tenure,
                         .sequence = write.sequence,
                         .checksum = checksum,
                         .group_left = group_left};
    if (state_.table.present(slab, SlabTable::page_in_slab(write.page))) {
        const PageEntry base = source_of(write.page, slab).entry;
        record.base_tenure = base.tenure;
        record.base_checksum = base.checksum;
    } else {
        record.flags = JournalRecord::base_is_zeros;
        record.dirty = nonzero_sectors(bytes_of(write));
    }
    std::array<std::span<const std::byte>, sectors_per_page> payload;
    size_t count = 0;
    for (unsigned sector = 0; sector < sectors_per_page; ++sector)
        if ((record.dirty >> sector & 1) != 0)
            payload[count++] = bytes_of(write).subspan(sector * sector_size, sector_size);
    const uint64_t position = append_change(record, std::span(payload).first(count));
    state_.on_delta(record, position, journal_.head());
}

size_t Store::group_pages_max() const {
    return std::min<size_t>(256, journal_.group_size_max() / delta_size(all_sectors));
}

// All records in one batch: it is believed as a whole or not at all.
Task<Result<>> Store::write_group(Loop& loop, std::span<const PageWrite> pages, std::span<const SlabIndex> slabs) {
    std::vector<uint32_t> checksums;
    for (const PageWrite& write : pages) checksums.push_back(page_checksum(write.page, write.tenure, bytes_of(write)));
    const uint64_t size = pages.size() * delta_size(all_sectors);
    for (;;) {
        CO_TRY_VOID(co_await wait_for_room(loop, size));
        const std::lock_guard lock(mutex_);
        if (!has_room(size)) continue;
        journal_.keep_together(size);
        for (size_t i = 0; i < pages.size(); ++i)
            append_delta(pages[i], slabs[i], checksums[i], static_cast<uint32_t>(pages.size() - 1 - i));
        co_return Result<>{};
    }
}

Task<Result<>> Store::zero(Loop& loop, PageId first, uint64_t count, bool keep_space) {
    TARN_ASSERT(first.number() + count <= page_number_mask + 1);
    const uint64_t last = first.number() + count;
    std::vector<std::pair<SlabIndex, uint64_t>> slabs;
    // Beyond as many slabs as there are, walking those that exist is shorter than walking the range.
    if (count / pages_per_slab > state_.table.slab_count()) {
        slabs = slabs_of(first.volume());
    } else {
        const std::lock_guard lock(mutex_);
        for (uint64_t number = SlabTable::slab_number(first); number * pages_per_slab < last; ++number)
            if (const auto slab = state_.table.find(first.volume(), number)) slabs.emplace_back(*slab, number);
    }
    for (const auto& [slab, number] : slabs) {
        const uint64_t start = std::max(first.number(), number * pages_per_slab);
        const uint64_t end = std::min(last, (number + 1) * pages_per_slab);
        if (start >= end) continue;
        CO_TRY_VOID(co_await clear(loop, slab, PageId::of(first.volume(), start), end - start,
                                   keep_space ? Cleared::kept : Cleared::free));
    }
    co_return Result<>{};
}

Task<Result<>> Store::zero_page(Loop& loop, PageId page) {
    const auto slab = locked([&] { return state_.table.find(page.volume(), SlabTable::slab_number(page)); });
    if (!slab) co_return Result<>{};
    co_return co_await clear(loop, *slab, page, 1, Cleared::as_reserved);
}

Task<Result<>> Store::clear(Loop& loop, SlabIndex slab, PageId first, uint64_t count, Cleared then) {
    const uint64_t in_slab = SlabTable::page_in_slab(first);
    for (;;) {
        CO_TRY_VOID(co_await wait_for_room(loop, sizeof(JournalRecord)));
        const std::lock_guard lock(mutex_);
        if (state_.table.find(first.volume(), SlabTable::slab_number(first)) != slab) break;  // gone meanwhile
        if (!state_.table.clear_matters(slab, in_slab, count, then)) {
            state_.table.clear(slab, in_slab, count, then, 0);
            break;
        }
        if (!has_room(sizeof(JournalRecord))) continue;
        const bool releases = state_.table.clear_releases(slab, in_slab, count, then);
        const JournalRecord record{.kind = RecordKind::clear,
                                   .flags = then == Cleared::kept ? JournalRecord::keeps_space
                                            : releases            ? JournalRecord::releases
                                                                  : uint8_t{0},
                                   .slab = slab,
                                   .page = first,
                                   .count = static_cast<uint32_t>(count)};
        append_change(record, {});
        state_.on_clear(record, journal_.head(), then);
        break;
    }
    co_return Result<>{};
}

Task<Result<>> Store::drop_volume(Loop& loop, VolumeId volume) {
    CO_TRY_VOID(co_await zero(loop, PageId::of(volume, 0), page_number_mask + 1));
    co_return co_await flush(loop);  // nobody else gets the space before
}

bool Store::has_room(uint64_t size_bytes) const {
    return !failure_ && journal_.ring_has_room(size_bytes) && journal_.staging_has_room(size_bytes) &&
           state_.journaled_count() < journaled_pages_max_;
}

}  // namespace tarn
