#include "tiers/nvme/store.hpp"

#include <algorithm>
#include <cstring>

#include "utils/assert.hpp"

namespace tarn {

namespace {

bool is_aligned(const void* bytes) {
    return reinterpret_cast<uintptr_t>(bytes) % page_size == 0;
}

void append(std::vector<PageRun>& runs, const PageRun& run) {
    if (run.count == 0) return;
    if (!runs.empty() && runs.back().present == run.present)
        runs.back().count += run.count;
    else
        runs.push_back(run);
}

}  // namespace

Store::~Store() = default;

uint64_t Store::device_offset(SlabIndex slab, uint64_t page) const {
    return layout_.data_offset + slab * slab_size + page * page_size;
}

Task<Result<>> Store::read(Loop& loop, PageId page, std::span<std::byte, page_size> into) {
    std::byte* const bytes = into.data();
    co_return co_await read_run(loop, page, std::span(&bytes, 1));
}

Task<Result<>> Store::read_run(Loop& loop, PageId first, std::span<std::byte* const> into) {
    TARN_ASSERT(first.number() + into.size() <= page_number_mask + 1);
    Transfer transfer(Transfer::Direction::read);
    std::vector<SlabIndex> pinned;
    {
        const std::lock_guard lock(mutex_);
        for (size_t i = 0; i < into.size();) {
            const PageId start = PageId::of(first.volume(), first.number() + i);
            const uint64_t in_slab = SlabTable::page_in_slab(start);
            const size_t count = std::min(into.size() - i, pages_per_slab - in_slab);
            const auto slab = table_.find(start.volume(), SlabTable::slab_number(start));
            if (slab) {
                table_.pin(*slab);
                pinned.push_back(*slab);
            }
            for (size_t k = 0; k < count; ++k) {
                TARN_ASSERT(is_aligned(into[i + k]));
                if (slab && table_.present(*slab, in_slab + k))
                    transfer.add(device_offset(*slab, in_slab + k), into[i + k], page_size);
                else
                    std::memset(into[i + k], 0, page_size);
            }
            i += count;
        }
    }
    const Result<> result = co_await transfer.run(loop, file_.fd());
    const std::lock_guard lock(mutex_);
    for (const SlabIndex slab : pinned) table_.unpin(slab);
    co_return result;
}

// Gives each page its slab; all of them or none.
Result<> Store::pin_for_write(std::span<const PageWrite> pages, std::vector<SlabIndex>& slabs) {
    const std::lock_guard lock(mutex_);
    std::vector<bool> was_reserved;
    for (const PageWrite& write : pages) {
        const uint64_t page = SlabTable::page_in_slab(write.page);
        const auto known = table_.find(write.page.volume(), SlabTable::slab_number(write.page));
        was_reserved.push_back(known && (table_.reserved(*known, page) || table_.present(*known, page)));
        const Result<SlabIndex> slab = table_.reserve(write.page);
        if (!slab) {
            for (size_t i = 0; i < slabs.size(); ++i) {
                table_.unpin(slabs[i]);
                if (!was_reserved[i]) table_.unreserve(slabs[i], SlabTable::page_in_slab(pages[i].page));
            }
            slabs.clear();
            return fail(slab.error());
        }
        table_.pin(*slab);
        slabs.push_back(*slab);
    }
    return {};
}

Task<Result<>> Store::write(Loop& loop, std::span<const PageWrite> pages) {
    std::vector<SlabIndex> slabs;
    slabs.reserve(pages.size());
    Result<> pinned = pin_for_write(pages, slabs);
    if (!pinned) {
        bool flush_may_help = false;
        {
            const std::lock_guard lock(mutex_);
            flush_may_help = table_.anything_releasing();
        }
        if (flush_may_help) {
            CO_TRY_VOID(co_await flush(loop));
            pinned = pin_for_write(pages, slabs);
        }
    }
    if (!pinned) co_return pinned;

    Transfer transfer(Transfer::Direction::write);
    for (size_t i = 0; i < pages.size(); ++i) {
        TARN_ASSERT(is_aligned(pages[i].bytes));
        transfer.add(device_offset(slabs[i], SlabTable::page_in_slab(pages[i].page)), pages[i].bytes, page_size);
    }
    const Result<> result = co_await transfer.run(loop, file_.fd());
    const std::lock_guard lock(mutex_);
    // Present only now: a table that became durable meanwhile must not point to bytes that were not yet written.
    for (size_t i = 0; i < pages.size(); ++i) {
        if (result) table_.set_present(slabs[i], SlabTable::page_in_slab(pages[i].page));
        table_.unpin(slabs[i]);
    }
    ++writes_;
    co_return result;
}

// Calls visit(slab index, slab number) under the lock, and lets others have it now and then.
template <class Visit>
void Store::for_each_slab(VolumeId volume, Visit visit) const {
    constexpr uint64_t slabs_per_turn = 16384;
    for (uint64_t slab = 0; slab < table_.slab_count(); slab += slabs_per_turn) {
        const std::lock_guard lock(mutex_);
        table_.for_each(volume, static_cast<SlabIndex>(slab), slabs_per_turn, visit);
    }
}

Task<Result<>> Store::zero(Loop& /*for the journal*/, PageId first, uint64_t count, bool keep_space) {
    TARN_ASSERT(first.number() + count <= page_number_mask + 1);
    // Beyond as many slabs as there are, walking those that exist is shorter than walking the range.
    const uint64_t last = first.number() + count;
    const auto clear = [&](SlabIndex slab, uint64_t number) {
        const uint64_t start = std::max(first.number(), number * pages_per_slab);
        const uint64_t end = std::min(last, (number + 1) * pages_per_slab);
        if (start < end) table_.clear(slab, start % pages_per_slab, end - start, keep_space);
    };
    if (count / pages_per_slab > table_.slab_count()) {
        for_each_slab(first.volume(), clear);
        co_return Result<>{};
    }
    const std::lock_guard lock(mutex_);
    for (uint64_t number = SlabTable::slab_number(first); number * pages_per_slab < last; ++number)
        if (const auto slab = table_.find(first.volume(), number)) clear(*slab, number);
    co_return Result<>{};
}

Task<Result<>> Store::drop_volume(Loop& loop, VolumeId volume) {
    return zero(loop, PageId::of(volume, 0), page_number_mask + 1);
}

Result<> Store::reserve(PageId page) {
    const std::lock_guard lock(mutex_);
    TRY_VOID(table_.reserve(page));
    return {};
}

void Store::unreserve(PageId page) {
    const std::lock_guard lock(mutex_);
    if (const auto slab = table_.find(page.volume(), SlabTable::slab_number(page)))
        table_.unreserve(*slab, SlabTable::page_in_slab(page));
}

bool Store::present(PageId page) const {
    const std::lock_guard lock(mutex_);
    const auto slab = table_.find(page.volume(), SlabTable::slab_number(page));
    return slab && table_.present(*slab, page.number() % pages_per_slab);
}

bool Store::has_room_for(PageId page) const {
    const std::lock_guard lock(mutex_);
    return table_.free_count() > 0 || table_.find(page.volume(), SlabTable::slab_number(page));
}

Task<Result<>> Store::make_room(Loop& loop, PageId page) {
    {
        const std::lock_guard lock(mutex_);
        const Result<SlabIndex> slab = table_.reserve(page);
        if (slab) co_return Result<>{};
        if (!table_.anything_releasing()) co_return fail(slab.error());
    }
    CO_TRY_VOID(co_await flush(loop));
    co_return reserve(page);
}

std::vector<PageRun> Store::extents(VolumeId volume, uint64_t first, uint64_t count, size_t runs_max) const {
    TARN_ASSERT(first + count <= page_number_mask + 1 && runs_max > 0);
    // As in zero(): a sparse volume may be far larger than the store.
    if (count / pages_per_slab > table_.slab_count()) return runs_by_number(volume, first, count, runs_max);
    std::vector<PageRun> runs;
    const std::lock_guard lock(mutex_);
    for (uint64_t page = first; page < first + count && runs.size() <= runs_max;) {
        const uint64_t in_slab = page % pages_per_slab;
        const uint64_t pages = std::min(pages_per_slab - in_slab, first + count - page);
        const auto slab = table_.find(volume, page / pages_per_slab);
        for (uint64_t k = 0; k < pages; ++k)
            append(runs, {.first = page + k, .count = 1, .present = slab && table_.present(*slab, in_slab + k)});
        page += pages;
    }
    if (runs.size() > runs_max) runs.resize(runs_max);
    return runs;
}

std::vector<PageRun> Store::runs_by_number(VolumeId volume, uint64_t first, uint64_t count, size_t runs_max) const {
    std::vector<uint64_t> numbers;
    for_each_slab(volume, [&](SlabIndex, uint64_t number) { numbers.push_back(number); });
    std::ranges::sort(numbers);
    std::vector<PageRun> runs;
    uint64_t page = first;
    for (const uint64_t number : numbers) {
        const uint64_t start = std::max(page, number * pages_per_slab);
        const uint64_t end = std::min(first + count, (number + 1) * pages_per_slab);
        if (start >= end) continue;
        append(runs, {.first = page, .count = start - page, .present = false});
        for (const PageRun& run : extents(volume, start, end - start, pages_per_slab)) append(runs, run);
        page = end;
        if (runs.size() > runs_max) break;
    }
    if (runs.size() <= runs_max) append(runs, {.first = page, .count = first + count - page, .present = false});
    if (runs.size() > runs_max) runs.resize(runs_max);
    return runs;
}

std::vector<VolumeId> Store::volumes() const {
    const std::lock_guard lock(mutex_);
    std::vector<VolumeId> volumes;
    for (const auto& [volume, slab_count] : table_.volumes()) volumes.push_back(volume);
    return volumes;
}

uint64_t Store::allocated_bytes(VolumeId volume) const {
    const std::lock_guard lock(mutex_);
    const auto found = table_.volumes().find(volume);
    return found == table_.volumes().end() ? 0 : found->second * slab_size;
}

StoreSpace Store::space() const {
    const std::lock_guard lock(mutex_);
    return {
        .total_bytes = table_.slab_count() * slab_size,
        .allocated_bytes = (table_.slab_count() - table_.free_count()) * slab_size,
        .free_bytes = table_.free_count() * slab_size,
    };
}

std::optional<Error> Store::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
}

}  // namespace tarn
