// Pages: local reads and writes of the pages that this host holds: lookup, latches, bytes. It knows no messages.
//
// The hot path: any thread, by the frame's word alone: find, latch, copy, release. It never waits; if a page is not
// held, or not with enough ownership, the caller takes the cold path (PageAccess). The protocol's steps open and close
// frames (FrameWord); the listener hears when the last latch of a busy frame is gone.
#pragma once

#include <span>
#include <vector>

#include "coherence/membership/membership.hpp"
#include "coherence/pages/last_writes.hpp"
#include "coherence/pages/loss_view.hpp"
#include "coherence/pages/page_update.hpp"
#include "coherence/pages/write_check.hpp"
#include "tiers/dram/frame_index.hpp"
#include "tiers/dram/frame_pool.hpp"
#include "tiers/dram/frame_set.hpp"
#include "tiers/dram/replacement.hpp"
#include "tiers/dram/write_receipts.hpp"
#include "utils/atomic.hpp"

namespace tarn {

class Pages {
  public:
    class Listener {
      public:
        // The last latch of a busy frame is gone. Nobody but the stripe can touch the frame until it has heard that.
        virtual void on_quiet(Frame& frame, PageId page) = 0;
        // The session uses a page of this home for the first time.
        virtual void on_first_use(LossView& view, HostId home) = 0;

      protected:
        ~Listener() = default;
    };

    Pages(FramePool& pool, const Membership& membership, unsigned stripe_bits, Listener& listener);

    // Within one page; view: the session's. False: nothing was done.
    bool try_read(PageId page, size_t offset, std::span<std::byte> into, LossView& view);
    bool try_write(PageId page, size_t offset, std::span<const std::byte> from, LossView& view,
                   WriteCheck* check = nullptr, PageReceipt receipt = {});
    bool try_update(PageId page, PageUpdate& update, LossView& view);
    // Over several pages: all of them are latched before the first byte changes. receipts: of a request of these pages.
    bool try_write_run(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from, LossView& view,
                       WriteCheck* check = nullptr, WriteReceipts* receipts = nullptr);
    // The same from within the update of another page, whose latch is held: frames to report by report_quiet(), once
    // that latch is released, are added to quiet.
    struct QuietFrame {
        FrameId frame;
        PageId page;
    };
    bool try_write_within(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from, LossView& view,
                          std::vector<QuietFrame>& quiet);
    void report_quiet(std::span<const QuietFrame> quiet);

    // Ahead of the searches for several pages: the CPU then fetches what these need for all of them at once.
    void prefetch(std::span<const PageId> pages) const;
    // The same of a run.
    void prefetch(VolumeId volume, uint64_t first, size_t count) const;

    // Whether a read, or a write, would find the page now.
    bool holds(PageId page) const;
    bool is_writable(PageId page) const;
    // Whether the session may see the bytes of a page that an access holds. Does not wait, even if others are inside.
    bool may_use(PageId page, LossView& view) const;
    // The frame's bytes stay as they are until unpin().
    FrameId try_pin(PageId page, LossView& view);
    void unpin(FrameId id);
    // Call it before a page's bytes are used: sets from when on its losses count for the session.
    void count_losses(PageId page, LossView& view) const {
        if (view.unheard() != 0) [[unlikely]]
            count_losses_slowly(page, view);
    }
    const std::byte* bytes(FrameId id) const { return pool_.bytes(id); }

    // A woken access has the frame to itself (writing) or shares it with readers, while fn(frame, bytes) runs.
    template <class Function>
    void with_frame(FrameId id, bool writing, Function&& fn);
    // Called under the exclusive latch. If this process is killed half-way, the next one finishes the write.
    // receipt: written with it; of a frame that is not on record yet, by who puts it there.
    void write_frame(Frame& frame, size_t offset, std::span<const std::byte> from, PageReceipt* receipt = nullptr);
    // The same of a run of pages that are on record: `from` begins at this offset of the first. Large ones are written
    // past the CPU's caches: nobody reads them soon, as their clients have caches of their own.
    void write_frames(std::span<Frame* const> frames, size_t offset, std::span<const std::byte> from,
                      WriteReceipts* receipts);
    void zero_frame(Frame& frame, size_t offset, size_t size, PageReceipt* receipt = nullptr);
    void update_frame(Frame& frame, PageUpdate& update);
    // Marks the bytes of a write that the previous process began. Call it before any thread asks for pages.
    void mark_written(Frame& frame, size_t offset, size_t size);

    void mark_dirty(Frame& frame, DirtyMask mask);
    void forget_dirty_if_clean(Frame& frame);
    static bool is_dirty(const Frame& frame) { return frame.home_dirty || unwritten(frame) != 0; }
    // The frame's sectors that are dirty or being written home.
    static DirtyMask unwritten(const Frame& frame) {
        return frame.dirty.load(std::memory_order_relaxed) | frame.writing.load(std::memory_order_relaxed);
    }
    // Whether a thread wrote it just now.
    bool is_being_written(FrameId frame) const;

    // For steps of the protocol, under the latch of the page's stripe.
    FrameIndex& index() { return index_; }
    FrameSet& dirty_frames() { return dirty_frames_; }
    Replacement& replacement() { return replacement_; }

  private:
    // What a run of pages gets of bytes that begin at this offset of its first page.
    struct RunPart {
        size_t offset;  // in its page
        std::span<const std::byte> bytes;
    };
    static RunPart part_of_run(size_t page, size_t offset, std::span<const std::byte> bytes) {
        const size_t begin = std::max(offset, page * page_size);
        const size_t end = std::min(offset + bytes.size(), (page + 1) * page_size);
        return {.offset = begin - page * page_size, .bytes = bytes.subspan(begin - offset, end - begin)};
    }

    bool may_use(const Frame& frame, PageId page, LossView& view) const;
    bool may_change(const Frame& frame, PageId page, LossView& view) const;
    void count_losses_slowly(PageId page, LossView& view) const;
    template <class Function>
    bool try_change(PageId page, LossView& view, Function&& change);
    template <class Report>
    bool write_latched(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from, LossView& view,
                       WriteCheck* check, WriteReceipts* receipts, Report&& report);

    FramePool& pool_;
    const Membership& membership_;
    Listener& listener_;
    FrameIndex index_;
    FrameSet dirty_frames_;
    Replacement replacement_;
    LastWrites last_writes_;
};

template <class Function>
void Pages::with_frame(FrameId id, bool writing, Function&& fn) {
    Frame& frame = pool_.frame(id);
    std::byte* const bytes = pool_.bytes(id);
    for (;; pause_cpu()) {
        const FrameWord::Value seen = frame.word.load();
        if ((seen & FrameWord::ownership_mask) == FrameWord::none) return fn(frame, bytes);  // blank, and ours alone
        if (writing ? frame.word.try_latch_exclusive(seen) : frame.word.try_pin(seen)) break;
        if (FrameWord::latched(seen)) yield_cpu();  // another thread is inside, for microseconds
    }
    const PageId page = frame.page_id();
    fn(frame, bytes);
    replacement_.touch(frame);
    const bool quiet = writing ? frame.word.unlatch_exclusive() : frame.word.unpin();
    if (quiet) listener_.on_quiet(frame, page);
}

}  // namespace tarn
