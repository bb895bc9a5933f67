#include "tiers/nvme/store.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "tiers/nvme/device/checksum.hpp"
#include "utils/assert.hpp"
#include "utils/log.hpp"

namespace tarn {

namespace {

constexpr std::array<unsigned, 4> space_marks_percent = {80, 90, 95, 100};

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

uint64_t Store::device_offset(SlabIndex slab, uint64_t page) const {
    return layout_.data_offset + slab * slab_size + page * page_size;
}

PageLoader::Source Store::source_of(PageId page, SlabIndex slab) const {
    const uint64_t in_slab = SlabTable::page_in_slab(page);
    PageLoader::Source source{.page = page, .place = device_offset(slab, in_slab), .entry = {}, .journaled = {}};
    if (const JournaledPage* const journaled = state_.find(page)) {
        source.in_journal = true;
        source.journaled = *journaled;
        source.entry = {.tenure = journaled->tenure, .checksum = journaled->checksum};
    } else {
        source.entry = state_.table.entry(slab, in_slab);
    }
    return source;
}

Task<Result<>> Store::read(Loop& loop, PageId page, std::span<std::byte, page_size> into) {
    std::byte* const bytes = into.data();
    co_return co_await read_run(loop, page, std::span(&bytes, 1));
}

// What most reads ask for: one page that lies whole in its place. Its slab stays pinned until the read has ended.
std::optional<std::pair<PageLoader::Source, SlabIndex>> Store::pin_in_place(PageId page) {
    const std::lock_guard lock(mutex_);
    const auto slab = state_.table.find(page.volume(), SlabTable::slab_number(page));
    if (!slab || !state_.table.present(*slab, SlabTable::page_in_slab(page))) return std::nullopt;
    const PageLoader::Source source = source_of(page, *slab);
    if (source.in_journal) return std::nullopt;
    state_.table.pin(*slab);
    return std::pair(source, *slab);
}

Task<Result<>> Store::read_run(Loop& loop, PageId first, std::span<std::byte* const> into) {
    TARN_ASSERT(first.number() + into.size() <= page_number_mask + 1);
    const auto in_place = into.size() == 1 ? pin_in_place(first) : std::nullopt;
    if (!in_place) co_return co_await load_run(loop, first, into, nullptr);
    const auto& [source, slab] = *in_place;
    const iovec piece{.iov_base = into[0], .iov_len = page_size};
    Result<> result = co_await device_->read(loop, std::span(&piece, 1), source.place);
    if (result) {
        const std::span<const std::byte, page_size> bytes(into[0], page_size);
        const uint32_t found = page_checksum(source.page, source.entry.tenure, bytes);
        if (found != source.entry.checksum) result = co_await read_again(loop, source, found, into[0]);
    }
    const std::lock_guard lock(mutex_);
    state_.table.unpin(slab);
    co_return result;
}

Task<Result<>> Store::load_run(Loop& loop, PageId first, std::span<std::byte* const> into, std::vector<BadPage>* bad) {
    PageLoader loader;
    std::vector<SlabIndex> pinned;
    {
        const std::lock_guard lock(mutex_);
        for (size_t i = 0; i < into.size();) {
            const PageId start = PageId::of(first.volume(), first.number() + i);
            const uint64_t in_slab = SlabTable::page_in_slab(start);
            const size_t count = std::min(into.size() - i, pages_per_slab - in_slab);
            const auto slab = state_.table.find(start.volume(), SlabTable::slab_number(start));
            if (slab) {
                state_.table.pin(*slab);
                pinned.push_back(*slab);
            }
            for (size_t k = 0; k < count; ++k) {
                TARN_ASSERT(is_aligned(into[i + k]));
                if (slab && state_.table.present(*slab, in_slab + k))
                    loader.add(source_of({start.value + k}, *slab), journal_, into[i + k]);
                else
                    std::memset(into[i + k], 0, page_size);
            }
            i += count;
        }
    }
    Result<> result = co_await loader.run(loop, *device_);
    for (size_t i = 0; result && i < loader.count(); ++i) {
        if (const uint32_t found = loader.checksum(i); found != loader.source(i).entry.checksum)
            result = co_await read_again(loop, loader.source(i), found, loader.bytes(i));
        if (!result && bad && result.error().code == Errc::corrupt)
            bad->push_back({.page = loader.source(i).page, .why = std::exchange(result, {}).error()});
    }
    const std::lock_guard lock(mutex_);
    for (const SlabIndex slab : pinned) state_.table.unpin(slab);
    co_return result;
}

// What the device cannot read at once it may read one by one.
Task<std::vector<BadPage>> Store::check_run(Loop& loop, PageId first, size_t count) {
    const PageBuffer buffer = make_page_buffer(count);
    std::vector<std::byte*> pages;
    for (size_t i = 0; i < count; ++i) pages.push_back(buffer.get() + i * page_size);
    const std::span<std::byte* const> into = pages;
    std::vector<BadPage> bad;
    if (co_await load_run(loop, first, into, &bad)) co_return bad;
    bad.clear();
    for (size_t i = 0; i < count; ++i) {
        const PageId page{first.value + i};
        const Result<> read = co_await load_run(loop, page, into.subspan(i, 1), &bad);
        if (read) continue;
        log::error("store: volume {} page {} cannot be read: {}", page.volume(), page.number(),
                   log::describe(read.error()));
        bad.push_back({.page = page, .why = read.error()});
    }
    co_return bad;
}

// A checkpoint may have moved the page while it was read. If it is where it was, it is bad.
Task<Result<>> Store::read_again(Loop& loop, PageLoader::Source bad, uint32_t found, std::byte* into) {
    for (;;) {
        PageLoader loader;
        {
            const std::lock_guard lock(mutex_);
            const auto slab = state_.table.find(bad.page.volume(), SlabTable::slab_number(bad.page));
            if (!slab || !state_.table.present(*slab, SlabTable::page_in_slab(bad.page))) {
                std::memset(into, 0, page_size);
                co_return Result<>{};
            }
            const PageLoader::Source source = source_of(bad.page, *slab);
            if (source == bad) break;
            bad = source;
            loader.add(source, journal_, into);
        }
        CO_TRY_VOID(co_await loader.run(loop, *device_));
        found = loader.checksum(0);
        if (found == bad.entry.checksum) co_return Result<>{};
    }
    report_bad(bad, found);
    co_return fail(Errc::corrupt, 0, "store.read: a page does not match its checksum");
}

void Store::report_bad(const PageLoader::Source& source, uint32_t found) {
    bad_pages_.fetch_add(1, std::memory_order_relaxed);
    log::error("store: volume {} page {} at device offset {}{}: checksum {:08x}, expected {:08x}; its reads fail",
               source.page.volume(), source.page.number(), source.place, source.in_journal ? " and in the journal" : "",
               found, source.entry.checksum);
}

// Lets others have the lock now and then.
std::vector<std::pair<SlabIndex, uint64_t>> Store::slabs_of(VolumeId volume) const {
    constexpr uint64_t slabs_per_turn = 16384;
    std::vector<std::pair<SlabIndex, uint64_t>> slabs;
    for (uint64_t slab = 0; slab < state_.table.slab_count(); slab += slabs_per_turn) {
        const std::lock_guard lock(mutex_);
        state_.table.for_each(volume, static_cast<SlabIndex>(slab), slabs_per_turn,
                              [&](SlabIndex index, uint64_t number) { slabs.emplace_back(index, number); });
    }
    return slabs;
}

unsigned Store::mark_passed() {
    const uint64_t total = state_.table.slab_count();
    const auto percent = static_cast<unsigned>((total - state_.table.free_count()) * 100 / total);
    unsigned mark = 0;
    for (const unsigned each : space_marks_percent)
        if (percent >= each) mark = each;
    if (mark <= marked_percent_) {
        // Said again only after a real decrease.
        if (percent + 5 <= marked_percent_) marked_percent_ = mark;
        return 0;
    }
    return marked_percent_ = mark;
}

void Store::warn_of_space() {
    const unsigned mark = locked([&] { return mark_passed(); });
    if (mark == 100)
        log::warning(
            "store: all of the space is in use; writes that need more fail until something is deleted or trimmed");
    else if (mark != 0)
        log::warning("store: {} % of the space is in use; when it is full, writes fail", mark);
}

Result<> Store::reserve(PageId page) {
    TRY_VOID(locked([&] { return state_.table.reserve(page); }));
    warn_of_space();
    return {};
}

void Store::unreserve(PageId page) {
    const std::lock_guard lock(mutex_);
    if (const auto slab = state_.table.find(page.volume(), SlabTable::slab_number(page)))
        state_.table.unreserve(*slab, SlabTable::page_in_slab(page));
}

bool Store::present(PageId page) const {
    const std::lock_guard lock(mutex_);
    const auto slab = state_.table.find(page.volume(), SlabTable::slab_number(page));
    if (!slab || !state_.table.present(*slab, SlabTable::page_in_slab(page))) return false;
    state_.table.prefetch_entry(*slab, SlabTable::page_in_slab(page));  // who asks reads the page next
    return true;
}

Tenure Store::tenure_of(PageId page) const {
    const std::lock_guard lock(mutex_);
    const auto slab = state_.table.find(page.volume(), SlabTable::slab_number(page));
    if (!slab || !state_.table.present(*slab, SlabTable::page_in_slab(page))) return 0;
    return source_of(page, *slab).entry.tenure;
}

bool Store::has_room_for(PageId page) const {
    const std::lock_guard lock(mutex_);
    return state_.table.free_count() > 0 || state_.table.find(page.volume(), SlabTable::slab_number(page));
}

Task<Result<>> Store::make_room(Loop& loop, PageId page) {
    if (const Result<> reserved = reserve(page); reserved) co_return reserved;
    const bool flush_may_help = locked([&] { return state_.table.anything_releasing(); });
    if (!flush_may_help) co_return fail(Errc::no_space, 0, "store.make_room");
    CO_TRY_VOID(co_await flush(loop));
    co_return reserve(page);
}

std::vector<PageRun> Store::extents(VolumeId volume, uint64_t first, uint64_t count, size_t runs_max,
                                    uint64_t pages_max) const {
    TARN_ASSERT(first + count <= page_number_mask + 1 && runs_max > 0 && pages_max > 0);
    // As in zero(): a sparse volume may be far larger than the store.
    if (count / pages_per_slab > state_.table.slab_count())
        return runs_by_number(volume, first, count, runs_max, pages_max);
    std::vector<PageRun> runs;
    const std::lock_guard lock(mutex_);
    uint64_t looked_at = 0;
    for (uint64_t page = first; page < first + count && runs.size() <= runs_max && looked_at < pages_max;) {
        const uint64_t in_slab = page % pages_per_slab;
        const uint64_t pages = std::min(pages_per_slab - in_slab, first + count - page);
        if (const auto slab = state_.table.find(volume, page / pages_per_slab)) {
            for (uint64_t k = 0; k < pages; ++k)
                append(runs, {.first = page + k, .count = 1, .present = state_.table.present(*slab, in_slab + k)});
            looked_at += pages;
        } else {
            append(runs, {.first = page, .count = pages, .present = false});
            ++looked_at;
        }
        page += pages;
    }
    if (runs.size() > runs_max) runs.resize(runs_max);
    return runs;
}

Task<std::vector<PageRun>> Store::stored_runs(Loop& loop, VolumeId volume) const {
    std::vector<PageRun> runs;
    for (uint64_t at = 0; at <= page_number_mask;) {
        const std::vector<PageRun> some = extents(volume, at, page_number_mask + 1 - at);
        if (some.empty()) break;
        std::ranges::copy_if(some, std::back_inserter(runs), &PageRun::present);
        at = some.back().first + some.back().count;
        co_await Yield(loop);
    }
    co_return runs;
}

std::vector<PageRun> Store::runs_by_number(VolumeId volume, uint64_t first, uint64_t count, size_t runs_max,
                                           uint64_t pages_max) const {
    std::vector<uint64_t> numbers;
    for (const auto& [slab, number] : slabs_of(volume))
        if (number >= first / pages_per_slab) numbers.push_back(number);
    // No more are looked at than that: the first and the last may be partly in it.
    const size_t numbers_max = std::min<uint64_t>(numbers.size(), pages_max / pages_per_slab + 2);
    std::ranges::partial_sort(numbers, numbers.begin() + static_cast<ptrdiff_t>(numbers_max));
    std::vector<PageRun> runs;
    uint64_t page = first;
    uint64_t looked_at = 0;
    for (const uint64_t number : std::span(numbers).first(numbers_max)) {
        const uint64_t start = std::max(page, number * pages_per_slab);
        const uint64_t end = std::min(first + count, (number + 1) * pages_per_slab);
        if (start >= end) continue;
        append(runs, {.first = page, .count = start - page, .present = false});
        for (const PageRun& run : extents(volume, start, end - start, pages_per_slab)) append(runs, run);
        page = end;
        looked_at += end - start;
        if (runs.size() > runs_max || looked_at >= pages_max) break;
    }
    if (runs.size() <= runs_max && looked_at < pages_max)
        append(runs, {.first = page, .count = first + count - page, .present = false});
    if (runs.size() > runs_max) runs.resize(runs_max);
    return runs;
}

std::vector<VolumeId> Store::volumes() const {
    const std::lock_guard lock(mutex_);
    std::vector<VolumeId> volumes;
    for (const auto& [volume, slab_count] : state_.table.volumes()) volumes.push_back(volume);
    return volumes;
}

uint64_t Store::allocated_bytes(VolumeId volume) const {
    const std::lock_guard lock(mutex_);
    const auto found = state_.table.volumes().find(volume);
    return found == state_.table.volumes().end() ? 0 : found->second * slab_size;
}

StoreSpace Store::space() const {
    const std::lock_guard lock(mutex_);
    return {
        .total_bytes = state_.table.slab_count() * slab_size,
        .allocated_bytes = (state_.table.slab_count() - state_.table.free_count()) * slab_size,
        .stored_bytes = state_.table.present_count() * page_size,
        .free_bytes = state_.table.free_count() * slab_size,
    };
}

JournalStatus Store::journal_status() const {
    const std::lock_guard lock(mutex_);
    JournalStatus status = counts_;
    status.size_bytes = journal_.size_bytes();
    status.used_bytes = journal_.used_bytes();
    return status;
}

}  // namespace tarn
