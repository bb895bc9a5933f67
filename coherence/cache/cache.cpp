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
      pages_(*pool_, membership_, stripe_bits, *this),
      homes_(*pool_, stripe_bits, &Frame::home_next),
      home_dirty_frames_(pool_->frame_count()),
      lease_(configuration.lease),
      flusher_(std::make_unique<Flusher>(*this)),
      provider_(std::make_unique<PageProvider>(*this, shards_)),
      writable_share_(pool_->frame_count()),
      executor_(configuration.self, *this, *this, *this, *flusher_, *this) {
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

void Cache::on_quiet(Frame& frame, PageId page) {
    step(quiesced(frame, page));
}

void Cache::on_first_use(LossView& view, HostId home) {
    flusher_->count_from_now(view, home);
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
        pages_.index().prefetch(page);
        homes_.prefetch(page);
    });
    for_each_stripe([&](const protocol::Stripe& stripe, PageId page) {
        stripe.prefetch_records(page);
        pages_.index().prefetch_frame(page);
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

// Of a step: what the next process needs to know of it, and who waits for it.
class Cache::Recorder final : public StepObserver {
  public:
    Recorder(Cache& cache, StripeSlot& slot, Deferred& deferred) : cache_(cache), slot_(slot), deferred_(deferred) {}
    void on_decided(const protocol::Event& event, const protocol::Actions&) override {
        cache_.record(slot_, event);
        const VolumeId volume = event.page.volume();
        if (volume != 0 && volume == cache_.discarding_.load(std::memory_order_relaxed)) ++deferred_.discard_steps;
    }

  private:
    Cache& cache_;
    StripeSlot& slot_;
    Deferred& deferred_;
};

bool Cache::step_latched(StripeSlot& slot, const protocol::Event& event, Deferred& deferred) {
    if (abandoned()) return false;
    Recorder recorder(*this, slot, deferred);
    executor_.step(slot.stripe, slot.links, slot.scratch, event, deferred, recorder);
    return true;
}

void Cache::finish(Deferred& deferred) {
    executor_.finish(deferred);
    if (deferred.discard_steps != 0) count_discard_steps(deferred.discard_steps);
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
    pages_.replacement().count_fill();
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
        pages_.replacement().count_fill();
        return true;
    });
}

size_t Cache::dirty_frame_count() {
    size_t count = 0;
    pages_.dirty_frames().for_each([&](FrameId) { ++count; });
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
