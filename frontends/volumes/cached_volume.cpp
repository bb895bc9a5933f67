#include "frontends/volumes/cached_volume.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "coherence/pages/page_access.hpp"
#include "frontends/volumes/attribute_page.hpp"
#include "frontends/volumes/extents.hpp"
#include "utils/with_timeout.hpp"

namespace tarn {

namespace {

// Of the pool, what one session may have brought in ahead of itself.
constexpr size_t read_ahead_fraction = 16;

// Runs visit(page, offset in it, size in it) over the pages of a range, until it returns false.
template <class Visitor>
bool for_each_page(VolumeId volume, uint64_t offset_bytes, uint64_t size_bytes, Visitor&& visit) {
    for (uint64_t done = 0; done < size_bytes;) {
        const size_t offset = (offset_bytes + done) % page_size;
        const size_t size = std::min<uint64_t>(page_size - offset, size_bytes - done);
        if (!visit(PageId::of(volume, (offset_bytes + done) / page_size), offset, size)) return false;
        done += size;
    }
    return true;
}

}  // namespace

CachedVolume::CachedVolume(VolumeContext& context, std::shared_ptr<ClientSession> client)
    : context_(context),
      cache_(context.cache),
      client_(std::move(client)),
      session_(client_->session),
      read_ahead_(cache_.pool().frame_count() / read_ahead_fraction * page_size) {}

// Only of single pages: runs are fetched when they are accessed.
void CachedVolume::expect(std::span<const Range> ranges) {
    std::array<PageId, 32> pages;
    for (size_t count = 0; !ranges.empty(); count = 0) {
        const std::span<const Range> some = ranges.first(std::min(ranges.size(), pages.size()));
        for (const Range& range : some)
            if (range.size_bytes <= page_size) pages[count++] = PageId::of(id(), range.offset_bytes / page_size);
        cache_.pages().prefetch(std::span(pages).first(count));
        ranges = ranges.subspan(some.size());
    }
}

bool CachedVolume::try_pin(uint64_t offset_bytes, uint32_t size_bytes, std::vector<Pin>& pins) {
    const size_t before = pins.size();
    const uint64_t first = offset_bytes / page_size;
    cache_.pages().prefetch(id(), first, page_after(offset_bytes + size_bytes) - first);
    const bool all = for_each_page(id(), offset_bytes, size_bytes, [&](PageId page, size_t offset, size_t size) {
        const FrameId frame = cache_.pages().try_pin(page, session_.losses);
        if (frame == no_frame) return false;
        pins.push_back(
            {.bytes = cache_.pages().bytes(frame) + offset, .size_bytes = static_cast<uint32_t>(size), .frame = frame});
        return true;
    });
    if (all) {
        if (read_ahead_.at_marker(offset_bytes, size_bytes)) read_ahead(offset_bytes, size_bytes);
        return true;
    }
    unpin(std::span(pins).subspan(before));
    pins.resize(before);
    return false;
}

void CachedVolume::unpin(std::span<const Pin> pins) {
    for (const Pin& pin : pins) cache_.pages().unpin(pin.frame);
}

bool CachedVolume::try_read(uint64_t offset_bytes, std::span<std::byte> into) {
    std::byte* next = into.data();
    const bool all = for_each_page(id(), offset_bytes, into.size(), [&](PageId page, size_t offset, size_t size) {
        return cache_.pages().try_read(page, offset, {std::exchange(next, next + size), size}, session_.losses);
    });
    if (all && read_ahead_.at_marker(offset_bytes, into.size())) read_ahead(offset_bytes, into.size());
    return all;
}

void CachedVolume::read_ahead(uint64_t offset_bytes, uint64_t size_bytes) {
    const ReadAhead::Range range = read_ahead_.on_read(offset_bytes, size_bytes);
    if (range.size_bytes != 0 && !cache_.abandoned()) Loop::current()->spawn(bring_in(context_, id(), range));
}

// May outlive the session. A hint: whoever needs the pages sees the errors.
Task<> CachedVolume::bring_in(VolumeContext& context, VolumeId volume, ReadAhead::Range range) {
    const VolumeUses::Use use(context.cache.uses(), volume);
    co_await Yield(*Loop::current());                   // the read that asked comes first
    CachedVolume own(context, volume, OnLoss::revert);  // it shows them to nobody
    const Result<Attributes> now = co_await own.attributes();
    const uint64_t end = now ? std::min(range.offset_bytes + range.size_bytes, now->size_bytes) : 0;
    if (end > range.offset_bytes) (void)co_await own.fetch_pages(range.offset_bytes, end - range.offset_bytes);
}

bool CachedVolume::try_write_checked(uint64_t offset_bytes, std::span<const std::byte> from, WriteCheck* check,
                                     WriteReceipts* receipts) {
    if (from.empty()) return true;
    // A range is larger than what is written here at once: two homes at most.
    const HostId first_home = cache_.home_of(PageId::of(id(), offset_bytes / page_size));
    const HostId last_home = cache_.home_of(PageId::of(id(), (offset_bytes + from.size() - 1) / page_size));
    const protocol::Verifier first_began = cache_.verifiers().present(first_home);
    const protocol::Verifier last_began = cache_.verifiers().present(last_home);
    if (receipts) {
        if (first_began != 0) receipts->note_began(first_home, first_began);
        if (last_began != 0) receipts->note_began(last_home, last_began);
    }
    if (offset_bytes % page_size + from.size() <= page_size) {
        const PageId page = PageId::of(id(), offset_bytes / page_size);
        if (!cache_.pages().try_write(page, offset_bytes % page_size, from, session_.losses, check, {receipts, 0}))
            return false;
    } else if (!cache_.pages().try_write_run(id(), offset_bytes, from, session_.losses, check, receipts)) {
        return false;
    }
    note_written(offset_bytes, from.size(), [&](HostId home) { return home == first_home ? first_began : last_began; });
    return true;
}

Task<Result<>> CachedVolume::read(uint64_t offset_bytes, std::span<std::byte> into) {
    if (offset_bytes < volume_size_max) read_ahead(offset_bytes, into.size());
    PageRequest request(cache_.accesses(), *Loop::current(), session_.losses);
    request.add(PageAccess::Kind::read, id(), offset_bytes, into.size(), into.data(), nullptr);
    co_return co_await perform(request);
}

Task<Result<>> CachedVolume::fetch(uint64_t offset_bytes, uint64_t size_bytes) {
    if (offset_bytes < volume_size_max) read_ahead(offset_bytes, size_bytes);
    return fetch_pages(offset_bytes, size_bytes);
}

Task<Result<>> CachedVolume::write(uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts) {
    PageRequest request(cache_.accesses(), *Loop::current(), session_.losses);
    request.receipt_with(receipts, offset_bytes / page_size);
    request.add(PageAccess::Kind::write, id(), offset_bytes, from.size(), nullptr, from.data());
    co_return co_await perform_write(request, offset_bytes, from.size());
}

// A bounded number of pages at a time. first_page: of the request. keep_space: they are written as any other bytes, so
// that they have their space, as far as anything that was written has.
Task<Result<>> CachedVolume::zero_pages(uint64_t first_page, uint64_t offset_bytes, uint64_t size_bytes,
                                        bool keep_space, WriteReceipts* receipts) {
    constexpr uint64_t batch_pages = 256;
    constexpr uint64_t batch_size = batch_pages * page_size;
    static_assert(batch_pages <= WriteReceipts::window_pages);
    const auto kind = keep_space ? PageAccess::Kind::write : PageAccess::Kind::zero;
    static const std::vector<std::byte> zeros(batch_size);
    for (uint64_t done = 0; done < size_bytes;) {
        const uint64_t size = std::min(batch_size - (offset_bytes + done) % batch_size, size_bytes - done);
        const uint64_t batch = (offset_bytes + done) / batch_size * batch_pages;
        if (receipts && batch > first_page + receipts->window()) receipts->move_window(batch - first_page);
        PageRequest request(cache_.accesses(), *Loop::current(), session_.losses);
        request.receipt_with(receipts, first_page);
        request.add(kind, id(), offset_bytes + done, size, nullptr, keep_space ? zeros.data() : nullptr);
        CO_TRY_VOID(co_await perform_write(request, offset_bytes + done, size));
        done += size;
    }
    co_return Result<>{};
}

Task<Result<>> CachedVolume::zero(uint64_t offset_bytes, uint64_t size_bytes, bool keep_space,
                                  WriteReceipts* receipts) {
    const uint64_t first_page = offset_bytes / page_size;
    const uint64_t begin = std::max(offset_bytes, (first_page + (receipts ? receipts->window() : 0)) * page_size);
    const uint64_t end = offset_bytes + size_bytes;
    if (keep_space) co_return co_await zero_pages(first_page, begin, end - begin, true, receipts);
    // What is a hole already costs nothing, however long it is.
    for (uint64_t at = begin; at < end;) {
        CO_TRY(const std::vector<Extent> runs, co_await extents(at, end - at));
        TARN_ASSERT(!runs.empty());
        for (const Extent& run : runs)
            if (!run.hole)
                CO_TRY_VOID(co_await zero_pages(first_page, run.offset_bytes, run.size_bytes, false, receipts));
        at = runs.back().offset_bytes + runs.back().size_bytes;
    }
    co_return Result<>{};
}

Task<Result<>> CachedVolume::flush_range(uint64_t offset_bytes, uint64_t size_bytes, bool attributes) {
    co_return client_->flushed(co_await flush_pages(offset_bytes, size_bytes, attributes));
}

Task<Result<>> CachedVolume::flush_volume() {
    CO_TRY(const uint64_t size_bytes, co_await size());  // a loss of the attributes is no reason to flush fewer homes
    const uint64_t pages = std::max(page_after(size_bytes), client_->pages_end.load(std::memory_order_relaxed));
    const HostSet homes =
        cache_.membership().ranges().homes_of(id(), pages) | set_of(cache_.home_of(attribute_page_of(id())));
    co_return co_await flush_homes(homes);
}

// Alone where this host is home. Elsewhere the volume's flush says the same, and more.
Task<Result<>> CachedVolume::flush_pages(uint64_t offset_bytes, uint64_t size_bytes, bool attributes) {
    std::vector<PageId> pages;
    for_each_page(id(), offset_bytes, size_bytes, [&](PageId page, size_t, size_t) {
        pages.push_back(page);
        return true;
    });
    if (attributes) pages.push_back(attribute_page_of(id()));
    const auto is_ours = [&](PageId page) { return cache_.home_of(page) == cache_.self(); };
    if (!std::ranges::all_of(pages, is_ours)) co_return co_await flush_volume();
    co_return co_await cache_.flusher().flush_pages(session_, std::move(pages), Atomicity::page);
}

Task<Result<>> CachedVolume::flush_group(std::vector<uint64_t> numbers) {
    std::vector<PageId> pages;
    for (const uint64_t number : numbers) {
        pages.push_back(PageId::of(id(), number));
        TARN_ASSERT(cache_.home_of(pages.back()) == cache_.self());
    }
    return cache_.flusher().flush_pages(session_, std::move(pages), Atomicity::group);
}

Task<Result<>> CachedVolume::flush_up_to(uint64_t size_bytes) {
    return flush_homes(cache_.membership().ranges().homes_of(id(), page_after(size_bytes)));
}

// A piece at a time: each page that is waited for has a frame, and others need frames, too.
Task<Result<>> CachedVolume::prefetch(uint64_t offset_bytes, uint64_t size_bytes) {
    const uint64_t piece_size =
        std::bit_floor(std::clamp<uint64_t>(cache_.pool().frame_count() / 1024, 16, 256)) * page_size;
    const uint64_t end = offset_bytes + std::min(size_bytes, fetched_at_once_max());
    for (uint64_t at = offset_bytes; at < end;) {
        const uint64_t size = std::min(piece_size - at % piece_size, end - at);
        CO_TRY_VOID(co_await fetch_pages(at, size));
        at += size;
    }
    co_return Result<>{};
}

// More than a fraction of the pool would push out what it brought in.
uint64_t CachedVolume::fetched_at_once_max() const {
    return cache_.pool().frame_count() / 4 * page_size;
}

Task<Result<>> CachedVolume::fetch_pages(uint64_t offset_bytes, uint64_t size_bytes) {
    PageRequest request(cache_.accesses(), *Loop::current(), session_.losses);
    request.add(PageAccess::Kind::fetch, id(), offset_bytes, std::min(size_bytes, fetched_at_once_max()), nullptr,
                nullptr);
    co_return co_await perform(request);
}

Task<Result<std::vector<Extent>>> CachedVolume::extents(uint64_t offset_bytes, uint64_t size_bytes) {
    const uint64_t first = offset_bytes / page_size;
    auto asking = stored_runs(cache_, id(), first, page_after(offset_bytes + size_bytes) - first);
    if (fail_after().count() != 0 || co_await this_interrupt != nullptr)
        asking = with_timeout(fail_after(), std::move(asking));
    CO_TRY(const StoredRuns stored, co_await std::move(asking));
    std::vector<Extent> extents;
    const uint64_t end = std::min(offset_bytes + size_bytes, stored.end_page * page_size);
    uint64_t at = offset_bytes;
    const auto append = [&](uint64_t until, bool hole) {
        if (until > at) extents.push_back({.offset_bytes = at, .size_bytes = until - at, .hole = hole});
        at = std::max(at, until);
    };
    for (const StoredRun& run : stored.runs) {
        append(std::clamp(run.first_page * page_size, at, end), true);
        append(std::clamp((run.first_page + run.page_count) * page_size, at, end), false);
    }
    append(end, true);
    co_return extents;
}

std::optional<AttributePage> CachedVolume::try_attribute_page(LossView& losses) {
    const std::optional<AttributePage> page = try_load_front(cache_, id(), losses);
    if (page) apply_fail_after(*page);
    return page;
}

Task<Result<AttributePage>> CachedVolume::attribute_page(LossView& losses) {
    if (const std::optional<AttributePage> cached = try_attribute_page(losses)) co_return *cached;
    std::array<std::byte, AttributePage::front_size> front;
    PageRequest request(cache_.accesses(), *Loop::current(), losses);
    request.add(PageAccess::Kind::read, id(), attribute_page_of(id()).number() * page_size, front.size(), front.data(),
                nullptr);
    CO_TRY_VOID(co_await perform(request));
    co_return apply_fail_after(AttributePage::load(front.data(), front.size()));
}

std::optional<AttributePage> CachedVolume::try_attribute_page() {
    return try_attribute_page(session_.losses);
}

Task<Result<AttributePage>> CachedVolume::attribute_page() {
    return attribute_page(session_.losses);
}

std::optional<Attributes> CachedVolume::try_attributes() {
    const std::optional<AttributePage> page = try_attribute_page();
    return page ? std::optional(page->attributes()) : std::nullopt;
}

Task<Result<Attributes>> CachedVolume::attributes() {
    CO_TRY(const AttributePage page, co_await attribute_page());
    co_return page.attributes();
}

std::optional<uint64_t> CachedVolume::try_size() {
    const std::optional<AttributePage> page = try_attribute_page(all_are_past_);
    return page ? std::optional(page->size_bytes) : std::nullopt;
}

Task<Result<uint64_t>> CachedVolume::size() {
    CO_TRY(const AttributePage page, co_await attribute_page(all_are_past_));
    co_return page.size_bytes;
}

// Whoever opens a volume reads its attributes, and with them how long to wait for its hosts.
AttributePage CachedVolume::apply_fail_after(const AttributePage& page) {
    if (fail_after().count() != page.fail_after_ms) wait_at_most(std::chrono::milliseconds(page.fail_after_ms));
    return page;
}

Task<Result<>> CachedVolume::perform(PageRequest& request) {
    const bool may_end_early = fail_after().count() != 0 || co_await this_interrupt != nullptr;
    if (!may_end_early) co_return co_await request;
    co_return co_await request.with_timeout(fail_after());
}

Task<Result<>> CachedVolume::perform_write(PageRequest& request, uint64_t offset_bytes, uint64_t size_bytes) {
    const Result<> written = co_await perform(request);
    note_written(offset_bytes, size_bytes, [&](HostId home) { return request.began(home); });
    co_return written;
}

Task<Result<AttributePage>> CachedVolume::update_attributes(std::function<bool(AttributePage&)> change) {
    struct Update final : PageUpdate {
        bool apply(std::byte* bytes) override {
            after = AttributePage::load(bytes);
            if (!change(after)) return false;
            after.store(bytes);
            return true;
        }
        std::function<bool(AttributePage&)> change;
        AttributePage after;
    } update;
    update.size = sizeof(AttributePage);
    update.change = std::move(change);
    PageRequest request(cache_.accesses(), *Loop::current(), session_.losses);
    request.add_update(attribute_page_of(id()), update);
    CO_TRY_VOID(co_await perform_write(request, attribute_page_of(id()).number() * page_size, sizeof(AttributePage)));
    co_return update.after;
}

Task<Result<Attributes>> CachedVolume::change_attributes(AttributeChange change) {
    if (change.size_bytes) co_return co_await change_size(change);
    CO_TRY(const AttributePage after, co_await update_attributes([&](AttributePage& page) {
               change_page(page, change);
               return true;
           }));
    co_return after.attributes();
}

}  // namespace tarn
