#include "coherence/pages/pages.hpp"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstring>

namespace tarn {

namespace {

// The only place that reads bytes which a writer may be changing. The caller throws the copy away if the frame's word
// moved meanwhile. Under ThreadSanitizer, readers take a pin instead (Pages::try_read).
[[maybe_unused]] void copy_optimistically(std::byte* into, const std::byte* from, size_t size) {
    std::memcpy(into, from, size);
}

#if __has_feature(thread_sanitizer)
constexpr bool may_read_optimistically = false;
#else
constexpr bool may_read_optimistically = true;
#endif

// Of a page that is read from its first byte on, as by the kernel that sends it: the CPU begins to fetch ahead by
// itself only after some lines.
void fetch_front(const std::byte* page) {
    constexpr size_t line_bytes = 64;
    constexpr size_t lines = 8;
    for (size_t i = 0; i < lines; ++i) __builtin_prefetch(page + i * line_bytes, 0, 2);
}

DirtyMask sectors_of(size_t offset, size_t size) {
    const size_t first = offset / sector_size;
    const size_t end = (offset + size + sector_size - 1) / sector_size;
    return static_cast<DirtyMask>(((1u << end) - 1) & ~((1u << first) - 1));
}

}  // namespace

Pages::Pages(FramePool& pool, const Membership& membership, unsigned stripe_bits, Listener& listener)
    : pool_(pool),
      membership_(membership),
      listener_(listener),
      index_(pool, stripe_bits, &Frame::next),
      dirty_frames_(pool.frame_count()),
      replacement_(pool) {}

void Pages::prefetch(std::span<const PageId> pages) const {
    for (const PageId page : pages) index_.prefetch(page);
    for (const PageId page : pages) index_.prefetch_frame(page);
}

void Pages::prefetch(VolumeId volume, uint64_t first, size_t count) const {
    if (count < 2) return;
    for (size_t i = 0; i < count; i += FrameIndex::block_pages) index_.prefetch(PageId::of(volume, first + i));
    index_.prefetch(PageId::of(volume, first + count - 1));
    for (size_t i = 0; i < count; ++i) index_.prefetch_frame(PageId::of(volume, first + i));
}

// Bytes that the store could not read are for nobody, and lost bytes not for every session.
bool Pages::may_use(const Frame& frame, PageId page, LossView& view) const {
    if (frame.broken.load(std::memory_order_relaxed)) return false;
    count_losses(page, view);
    const uint32_t lost = frame.lost.load(std::memory_order_relaxed);
    return lost == 0 || view.may_read(page, membership_.home_of(page), lost);
}

void Pages::count_losses_slowly(PageId page, LossView& view) const {
    if (const HostId home = membership_.home_of(page); contains(view.unheard(), home))
        listener_.on_first_use(view, home);
}

bool Pages::try_read(PageId page, size_t offset, std::span<std::byte> into, LossView& view) {
    Frame* const frame = index_.find(page);
    if (!frame) return false;
    const FrameWord::Value seen = frame->word.load();
    if (!FrameWord::readable(seen) || frame->page_id() != page || !may_use(*frame, page, view)) return false;
    const std::byte* const bytes = pool_.bytes(pool_.id_of(*frame)) + offset;
    if constexpr (may_read_optimistically) {
        copy_optimistically(into.data(), bytes, into.size());
        if (!frame->word.unchanged_since(seen)) return false;
    } else {
        if (!frame->word.try_pin(seen)) return false;
        std::memcpy(into.data(), bytes, into.size());
        unpin(pool_.id_of(*frame));
    }
    replacement_.touch(*frame);
    return true;
}

bool Pages::is_writable(PageId page) const {
    const Frame* const frame = index_.find(page);
    return frame && frame->page_id() == page && frame->writable.load(std::memory_order_relaxed);
}

bool Pages::may_use(PageId page, LossView& view) const {
    const Frame* const frame = index_.find(page);
    return frame && frame->page_id() == page && may_use(*frame, page, view);
}

bool Pages::holds(PageId page) const {
    const Frame* const frame = index_.find(page);
    return frame && frame->page_id() == page && FrameWord::readable(frame->word.load());
}

FrameId Pages::try_pin(PageId page, LossView& view) {
    Frame* const frame = index_.find(page);
    if (!frame) return no_frame;
    const FrameWord::Value seen = frame->word.load();
    if (frame->page_id() != page || !may_use(*frame, page, view) || !frame->word.try_pin(seen)) return no_frame;
    replacement_.touch(*frame);
    const FrameId id = pool_.id_of(*frame);
    fetch_front(pool_.bytes(id));
    return id;
}

void Pages::unpin(FrameId id) {
    Frame& frame = pool_.frame(id);
    const PageId page = frame.page_id();
    if (frame.word.unpin()) listener_.on_quiet(frame, page);
}

bool Pages::try_write(PageId page, size_t offset, std::span<const std::byte> from, LossView& view, WriteCheck* check,
                      PageReceipt receipt) {
    bool written = false;
    return try_change(page, view,
                      [&](Frame& frame) {
                          if (check && !check->holds()) return;
                          write_frame(frame, offset, from, &receipt);
                          written = true;
                      }) &&
           written;
}

bool Pages::try_update(PageId page, PageUpdate& update, LossView& view) {
    return try_change(page, view, [&](Frame& frame) { update_frame(frame, update); });
}

template <class Function>
bool Pages::try_change(PageId page, LossView& view, Function&& change) {
    Frame* const frame = index_.find(page);
    if (!frame) return false;
    const FrameWord::Value seen = frame->word.load();
    if (frame->page_id() != page || !may_use(*frame, page, view) || !frame->word.try_latch_exclusive(seen))
        return false;
    change(*frame);
    if (frame->word.unlatch_exclusive()) listener_.on_quiet(*frame, page);
    replacement_.touch(*frame);
    return true;
}

bool Pages::try_write_run(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from, LossView& view,
                          WriteCheck* check, WriteReceipts* receipts) {
    return write_latched(volume, offset_bytes, from, view, check, receipts,
                         [&](Frame& frame, PageId page) { listener_.on_quiet(frame, page); });
}

bool Pages::try_write_within(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from, LossView& view,
                             std::vector<QuietFrame>& quiet) {
    return write_latched(volume, offset_bytes, from, view, nullptr, nullptr,
                         [&](Frame& frame, PageId page) { quiet.push_back({pool_.id_of(frame), page}); });
}

void Pages::report_quiet(std::span<const QuietFrame> quiet) {
    for (const auto& [frame, page] : quiet) listener_.on_quiet(pool_.frame(frame), page);
}

template <class Report>
bool Pages::write_latched(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from, LossView& view,
                          WriteCheck* check, WriteReceipts* receipts, Report&& report) {
    constexpr size_t pages_max = 257;  // 1 MiB at any offset
    const uint64_t first = offset_bytes / page_size;
    const size_t count = (offset_bytes + from.size() + page_size - 1) / page_size - first;
    if (count > pages_max) return false;
    prefetch(volume, first, count);
    std::array<Frame*, pages_max> frames;
    size_t latched = 0;
    for (; latched < count; ++latched) {
        const PageId page = PageId::of(volume, first + latched);
        Frame* const frame = index_.find(page);
        if (!frame) break;
        const FrameWord::Value seen = frame->word.load();
        if (frame->page_id() != page || !may_change(*frame, page, view) || !frame->word.try_latch_exclusive(seen))
            break;
        frames[latched] = frame;
    }
    const bool all = latched == count && (!check || check->holds());
    if (all) write_frames({frames.data(), count}, offset_bytes % page_size, from, receipts);
    for (size_t i = 0; all && i < count; ++i) {
        const bool is_whole = part_of_run(i, offset_bytes % page_size, from).bytes.size() == page_size;
        if (const uint32_t lost = frames[i]->lost.load(std::memory_order_relaxed); lost != 0 && is_whole)
            view.wrote_whole(frames[i]->page_id(), lost);
        replacement_.touch(*frames[i]);
    }
    // What hears that a frame is quiet may want another one of them, to store it for a flush, say.
    std::bitset<pages_max> quiet;
    for (size_t i = 0; i < latched; ++i) quiet[i] = frames[i]->word.unlatch_exclusive();
    for (size_t i = 0; i < latched; ++i)
        if (quiet[i]) report(*frames[i], PageId::of(volume, first + i));
    return all;
}

// Unreadable bytes cannot be changed in part; lost ones can, though the session must not see them.
bool Pages::may_change(const Frame& frame, PageId page, LossView& view) const {
    count_losses(page, view);
    return !frame.broken.load(std::memory_order_relaxed);
}

void Pages::mark_written(Frame& frame, size_t offset, size_t size) {
    frame.zeroed.store(false, std::memory_order_relaxed);
    mark_dirty(frame, sectors_of(offset, size));
    last_writes_.note(pool_.id_of(frame));
}

void Pages::mark_dirty(Frame& frame, DirtyMask mask) {
    frame.dirty.fetch_or(mask, std::memory_order_seq_cst);
    dirty_frames_.add(pool_.id_of(frame));
}

// A writer marks the mask before the set; we remove from the set before we reread the mask: one sees the other.
void Pages::forget_dirty_if_clean(Frame& frame) {
    const FrameId id = pool_.id_of(frame);
    dirty_frames_.remove(id);
    if ((frame.dirty.load(std::memory_order_seq_cst) | frame.writing.load(std::memory_order_seq_cst)) != 0)
        dirty_frames_.add(id);
}

// Only for such a frame is a turn of the loop, to see whether writes go on, worth the other host's wait.
bool Pages::is_being_written(FrameId frame) const {
    return (pool_.frame(frame).word.load() & FrameWord::exclusive) != 0 || last_writes_.has(frame);
}

}  // namespace tarn
