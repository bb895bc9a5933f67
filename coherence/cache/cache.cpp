#include "coherence/cache/cache.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "coherence/cache/flusher.hpp"
#include "coherence/cache/home_read_batch.hpp"
#include "coherence/cache/page_access.hpp"
#include "coherence/cache/page_provider.hpp"
#include "utils/clock.hpp"

namespace tarn {

using protocol::Want;

namespace {

// The only place that reads bytes which a writer may be changing. The caller throws the copy away if the frame's word
// moved meanwhile. Under ThreadSanitizer, readers take a pin instead (Cache::try_read).
[[maybe_unused]] void copy_optimistically(std::byte* into, const std::byte* from, size_t size) {
    std::memcpy(into, from, size);
}

#if __has_feature(thread_sanitizer)
constexpr bool may_read_optimistically = false;
#else
constexpr bool may_read_optimistically = true;
#endif

DirtyMask sectors_of(size_t offset, size_t size) {
    const size_t first = offset / sector_size;
    const size_t end = (offset + size + sector_size - 1) / sector_size;
    return static_cast<DirtyMask>(((1u << end) - 1) & ~((1u << first) - 1));
}

}  // namespace

Result<std::unique_ptr<Cache>> Cache::create(const CacheConfiguration& configuration, Store& store,
                                             std::unique_ptr<Arena> arena) {
    if (!arena) {
        TRY(arena, Arena::create(configuration.frame_count));
        ArenaHeader& header = arena->header();
        header.store = store.uuid();
        header.incarnation = static_cast<uint32_t>(store.home_epoch());
        header.epoch = static_cast<uint32_t>(store.home_epoch());
        // Alone, nobody but the process that ended can have seen what is gone.
        header.memory_was_lost = configuration.hosts.size() > 1 && !store.was_complete();
    }
    return std::unique_ptr<Cache>(new Cache(configuration, store, std::move(arena)));
}

Cache::Cache(const CacheConfiguration& configuration, Store& store, std::unique_ptr<Arena> arena)
    : shards_(configuration.shards),
      home_read_batches_(shards_),
      store_(store),
      pool_(std::make_unique<FramePool>(std::move(arena))),
      membership_(configuration.self, configuration.hosts, pool_->arena().header(), store),
      cached_(*pool_, stripe_bits, &Frame::next),
      homes_(*pool_, stripe_bits, &Frame::home_next),
      dirty_frames_(pool_->frame_count()),
      home_dirty_frames_(pool_->frame_count()),
      replacement_(*pool_),
      lease_(configuration.lease),
      flusher_(std::make_unique<Flusher>(*this)),
      provider_(std::make_unique<PageProvider>(*this, shards_)),
      writable_share_(pool_->frame_count()) {
    // The stripes' shares of the frames differ a little.
    const size_t pages_per_stripe = pool_->frame_count() / stripe_count * 9 / 8;
    for (size_t i = 0; i < stripe_count; ++i) {
        stripes_.push_back(std::make_unique<StripeSlot>(membership_, pool_->arena().header().request_ids[i]));
        stripes_.back()->stripe.expect(pages_per_stripe);
        if (!membership_.is_alone()) stripes_.back()->stripe.set_marks(marker_);
    }
    if (pool_->arena().adopted()) adopt();
    recover_if_all_have_reported();
}

Cache::~Cache() = default;

// What the store could not read is nobody's, and what was lost not everybody's.
bool Cache::may_use(const Frame& frame, PageId page, LossView& view) const {
    if (frame.broken.load(std::memory_order_relaxed)) return false;
    count_losses(page, view);
    const uint32_t lost = frame.lost.load(std::memory_order_relaxed);
    return lost == 0 || view.may_read(page, home_of(page), lost);
}

void Cache::count_losses_slowly(PageId page, LossView& view) const {
    if (const HostId home = home_of(page); protocol::contains(view.unheard(), home))
        flusher_->count_from_now(view, home);
}

bool Cache::try_read(PageId page, size_t offset, std::span<std::byte> into, LossView& view) {
    Frame* const frame = cached_.find(page);
    if (!frame) return false;
    const FrameWord::Value seen = frame->word.load();
    if (!FrameWord::readable(seen) || frame->page_id() != page || !may_use(*frame, page, view)) return false;
    const std::byte* const bytes = pool_->bytes(pool_->id_of(*frame)) + offset;
    if constexpr (may_read_optimistically) {
        copy_optimistically(into.data(), bytes, into.size());
        if (!frame->word.unchanged_since(seen)) return false;
    } else {
        if (!frame->word.try_pin(seen)) return false;
        std::memcpy(into.data(), bytes, into.size());
        unpin(pool_->id_of(*frame));
    }
    replacement_.touch(*frame);
    return true;
}

bool Cache::is_writable(PageId page) const {
    const Frame* const frame = cached_.find(page);
    return frame && frame->page_id() == page && frame->writable.load(std::memory_order_relaxed);
}

bool Cache::may_use(PageId page, LossView& view) const {
    const Frame* const frame = cached_.find(page);
    return frame && frame->page_id() == page && may_use(*frame, page, view);
}

bool Cache::holds(PageId page) {
    const Frame* const frame = cached_.find(page);
    return frame && frame->page_id() == page && FrameWord::readable(frame->word.load());
}

FrameId Cache::try_pin(PageId page, LossView& view) {
    Frame* const frame = cached_.find(page);
    if (!frame) return no_frame;
    const FrameWord::Value seen = frame->word.load();
    if (frame->page_id() != page || !may_use(*frame, page, view) || !frame->word.try_pin(seen)) return no_frame;
    replacement_.touch(*frame);
    return pool_->id_of(*frame);
}

void Cache::unpin(FrameId id) {
    Frame& frame = pool_->frame(id);
    const PageId page = frame.page_id();
    if (frame.word.unpin()) report_quiet(frame, page);
}

bool Cache::try_write(PageId page, size_t offset, std::span<const std::byte> from, LossView& view, WriteCheck* check) {
    bool written = false;
    return try_change(page, view,
                      [&](Frame& frame) {
                          if (check && !check->holds()) return;
                          write_frame(frame, offset, from);
                          written = true;
                      }) &&
           written;
}

bool Cache::try_update(PageId page, PageUpdate& update, LossView& view) {
    return try_change(page, view, [&](Frame& frame) { update_frame(frame, update); });
}

template <class Function>
bool Cache::try_change(PageId page, LossView& view, Function&& change) {
    Frame* const frame = cached_.find(page);
    if (!frame) return false;
    const FrameWord::Value seen = frame->word.load();
    if (frame->page_id() != page || !may_use(*frame, page, view) || !frame->word.try_latch_exclusive(seen))
        return false;
    change(*frame);
    if (frame->word.unlatch_exclusive()) report_quiet(*frame, page);
    replacement_.touch(*frame);
    return true;
}

bool Cache::try_write_run(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from, LossView& view,
                          WriteCheck* check) {
    return write_latched(volume, offset_bytes, from, view, check,
                         [&](Frame& frame, PageId page) { report_quiet(frame, page); });
}

bool Cache::try_write_within(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from, LossView& view,
                             std::vector<QuietFrame>& quiet) {
    return write_latched(volume, offset_bytes, from, view, nullptr,
                         [&](Frame& frame, PageId page) { quiet.push_back({pool_->id_of(frame), page}); });
}

void Cache::report_quiet(std::span<const QuietFrame> quiet) {
    for (const auto& [frame, page] : quiet) report_quiet(pool_->frame(frame), page);
}

template <class Report>
bool Cache::write_latched(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from, LossView& view,
                          WriteCheck* check, Report&& report) {
    constexpr size_t pages_max = 257;  // 1 MiB at any offset
    const uint64_t first = offset_bytes / page_size;
    const size_t count = (offset_bytes + from.size() + page_size - 1) / page_size - first;
    if (count > pages_max) return false;
    std::array<Frame*, pages_max> frames;
    size_t latched = 0;
    for (; latched < count; ++latched) {
        const PageId page = PageId::of(volume, first + latched);
        Frame* const frame = cached_.find(page);
        if (!frame) break;
        const FrameWord::Value seen = frame->word.load();
        if (frame->page_id() != page || !may_change(*frame, page, view) || !frame->word.try_latch_exclusive(seen))
            break;
        frames[latched] = frame;
    }
    const bool all = latched == count && (!check || check->holds());
    for (size_t i = 0, done = 0; i < latched; ++i) {
        Frame& frame = *frames[i];
        if (all) {
            const size_t offset = i == 0 ? offset_bytes % page_size : 0;
            const size_t size = std::min(page_size - offset, from.size() - done);
            write_frame(frame, offset, from.subspan(done, size));
            if (const uint32_t lost = frame.lost.load(std::memory_order_relaxed); lost != 0 && size == page_size)
                view.wrote_whole(frame.page_id(), lost);
            replacement_.touch(frame);
            done += size;
        }
    }
    for (size_t i = 0; i < latched; ++i)
        if (frames[i]->word.unlatch_exclusive()) report(*frames[i], PageId::of(volume, first + i));
    return all;
}

// Bytes that nobody could read cannot be changed in part; such as were lost can, though the session must not see them.
bool Cache::may_change(const Frame& frame, PageId page, LossView& view) const {
    count_losses(page, view);
    return !frame.broken.load(std::memory_order_relaxed);
}

void Cache::mark_written(Frame& frame, size_t offset, size_t size) {
    frame.zeroed.store(false, std::memory_order_relaxed);
    mark_dirty(frame, sectors_of(offset, size));
    last_writes_.note(pool_->id_of(frame));
}

// The last latch of a busy frame is gone. Nobody but the stripe can touch the frame until it has heard so.
void Cache::report_quiet(Frame& frame, PageId page) {
    step(quiesced(frame, page));
}

protocol::Event Cache::quiesced(Frame& frame, PageId page) {
    return protocol::Event::quiesced_of(
        page, frame.dirty.load(std::memory_order_relaxed) | frame.writing.load(std::memory_order_relaxed));
}

void Cache::prefetch(std::span<const PageId> pages) {
    // Neighbours share a stripe: one turn of its latch for all of them, or none if somebody else has it.
    const auto for_each_stripe = [&](auto&& visit) {
        for (size_t first = 0; first < pages.size();) {
            StripeSlot& slot = slot_of(pages[first]);
            const bool latched = slot.latch.try_lock();
            for (; first < pages.size() && &slot_of(pages[first]) == &slot; ++first)
                if (latched) visit(slot.stripe, pages[first]);
            if (latched) slot.latch.unlock();
        }
    };
    for_each_stripe([&](const protocol::Stripe& stripe, PageId page) {
        stripe.prefetch(page);
        cached_.prefetch(page);
        homes_.prefetch(page);
    });
    for_each_stripe([&](const protocol::Stripe& stripe, PageId page) {
        stripe.prefetch_records(page);
        cached_.prefetch_frame(page);
        homes_.prefetch_frame(page);
    });
}

void Cache::acquire(PageId page, Want want, PageAccess& access, FrameId spare) {
    counters_.misses.fetch_add(1, std::memory_order_relaxed);
    protocol::Event event =
        protocol::Event::acquire_of(page, want, reinterpret_cast<protocol::WaiterToken>(&access), spare);
    if (want != Want::shared && home_of(page) == self()) {
        event.store_failed = refuses_writes_of(page);
        event.no_space = !event.store_failed && !store_.reserve(page).has_value();
    }
    Deferred deferred;
    {
        StripeSlot& slot = slot_of(page);
        const std::lock_guard guard(slot.latch);
        access.next = slot.waiting;
        access.link = &slot.waiting;
        if (access.next) access.next->link = &access.next;
        slot.waiting = &access;
        if (abandoned()) {
            leave_waiting(access);
            access.post_failed(Errc::cancelled);
            return;
        }
        step_latched(slot, event, deferred);
    }
    finish(deferred);
}

Cache::Cancelled Cache::cancel(PageAccess& access) {
    Deferred deferred;
    {
        StripeSlot& slot = slot_of(access.page());
        const std::lock_guard guard(slot.latch);
        if (access.link == nullptr) return Cancelled::too_late;
        if (access.want() == Want::exclusive_no_read) return Cancelled::never;
        leave_waiting(access);
        step_latched(slot,
                     protocol::Event::about(protocol::Event::Kind::cancel, access.page(),
                                            reinterpret_cast<protocol::WaiterToken>(&access)),
                     deferred);
    }
    finish(deferred);
    return Cancelled::yes;
}

void Cache::leave_waiting(PageAccess& access) {
    *access.link = access.next;
    if (access.next) access.next->link = access.link;
    access.link = nullptr;
}

void Cache::served(PageId page) {
    step(protocol::Event::about(protocol::Event::Kind::served, page));
}

void Cache::loss_recorded(PageId page, uint32_t generation) {
    step(protocol::Event::loss_recorded_of(page, generation));
}

void Cache::marked(PageId page, bool store_failed) {
    step(protocol::Event::marked_of(page, store_failed));
}

void Cache::write_back(PageId page, protocol::WaiterToken waiter) {
    step(protocol::Event::about(protocol::Event::Kind::write_back, page, waiter));
}

void Cache::step(const protocol::Event& event) {
    Deferred deferred;
    {
        StripeSlot& slot = slot_of(event.page);
        const std::lock_guard guard(slot.latch);
        step_latched(slot, event, deferred);
    }
    finish(deferred);
}

bool Cache::step_latched(StripeSlot& slot, const protocol::Event& event, Deferred& deferred) {
    if (abandoned()) return false;
    std::vector<protocol::Event>& events = slot.events;
    TARN_ASSERT(events.empty());
    events.push_back(event);
    for (size_t next = 0; next < events.size(); ++next) {
        const protocol::Event now = events[next];
        slot.stripe.reserve();
        slot.actions.clear();
        slot.stripe.on(now, slot.actions);
        record(slot, now);
        if (const VolumeId volume = now.page.volume();
            volume != 0 && volume == discarding_.load(std::memory_order_relaxed))
            ++deferred.discard_steps;
        for (const protocol::Action& action : slot.actions) perform(slot, action, deferred);
    }
    events.clear();
    send_pending_grant(slot);
    return true;
}

void Cache::finish(Deferred& deferred) {
    if (!deferred.home_reads.empty()) {
        if (HomeReadBatch** const batch = home_read_batches_.here(); batch && *batch) {
            for (HomeRead& read : deferred.home_reads) (*batch)->add(read);
        } else {
            read_home_bytes(std::move(deferred.home_reads));
        }
    }
    if (!deferred.flush_actions.empty()) flusher_->run(std::move(deferred.flush_actions));
    if (!deferred.marks.empty()) marker_.add(std::move(deferred.marks));
    if (!deferred.losses.empty()) losses_.add(std::move(deferred.losses), deferred.lost_host);
    if (deferred.frames_freed) frames_freed();
    if (deferred.discard_steps != 0) count_discard_steps(deferred.discard_steps);
    for (const Recalled& recalled : deferred.recalled) Loop::current()->spawn(yield_lease(recalled));
    for (PageAccess* const access : deferred.woken) access->run();
}

// With pages that can go nowhere, what others' bytes have left of the reserve is what reads have to live on; half of it
// stays for messages, whose bytes are refused.
size_t Cache::reserve_count() const {
    return any_store_failed() ? lending_reserve_count() / 2 : provider_->reserve_count();
}

// Others' bytes may take all but these: should the store fail, these frames are not dirty ones.
size_t Cache::lending_reserve_count() const {
    return provider_->reserve_count() / 4;
}

FrameId Cache::take_frame() {
    if (!waiting_for_frames_.empty()) return no_frame;  // they were first
    const FrameId id = pool_->try_take(use_holder, reserve_count());
    replacement_.count_fill();
    if (pool_->free_count() < provider_->low_mark()) provider_->kick();
    return id;
}

void Cache::give_frame(FrameId id) {
    pool_->release(id, use_holder);
    frames_freed();
}

void Cache::wait_for_frame(FrameWaiter& waiter) {
    waiting_for_frames_.append(waiter);
    frames_freed();  // one may have come free before we were in the queue
    provider_->kick();
}

void Cache::frames_freed() {
    if (starved_links_.load(std::memory_order_seq_cst) != 0) {
        const protocol::HostSet starved = starved_links_.exchange(0, std::memory_order_seq_cst);
        protocol::for_each_host(starved, [&](HostId host) { fabric_->resume(host); });
    }
    waiting_for_frames_.serve([&](FrameWaiter& waiter) {
        waiter.frame = pool_->try_take(use_holder, reserve_count());
        if (waiter.frame == no_frame) return false;
        replacement_.count_fill();
        return true;
    });
}

size_t Cache::dirty_frame_count() {
    size_t count = 0;
    dirty_frames_.for_each([&](FrameId) { ++count; });
    home_dirty_frames_.for_each([&](FrameId) { ++count; });
    return count;
}

void Cache::abandon() {
    abandoned_.store(true, std::memory_order_seq_cst);
    for (const auto& slot : stripes_) {
        const std::lock_guard guard(slot->latch);
        while (PageAccess* const access = slot->waiting) {
            leave_waiting(*access);
            access->post_failed(Errc::cancelled);
        }
    }
    waiting_for_frames_.close();
    writable_share_.close();
    flusher_->abandon();
    membership_.changed().announce();
    discarded_.announce();
}

}  // namespace tarn
