#include "coherence/cache/cache.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "coherence/cache/flusher.hpp"
#include "coherence/cache/page_access.hpp"

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
    : store_(store),
      pool_(std::make_unique<FramePool>(std::move(arena))),
      membership_(configuration.self, configuration.hosts, pool_->arena().header(), store),
      peers_(membership_, store, *pool_),
      pages_(*pool_, membership_, Stripes::bits, *this),
      homes_(*pool_, Stripes::bits, &Frame::home_next),
      home_dirty_frames_(pool_->frame_count()),
      writable_share_(pool_->frame_count()),
      provider_({.membership = membership_,
                 .peers = peers_,
                 .pool = *pool_,
                 .pages = pages_,
                 .supply = supply_,
                 .writable_share = writable_share_,
                 .evictor = *this},
                configuration.shards),
      supply_(*pool_, pages_.replacement(), membership_, peers_, provider_),
      held_frames_({.membership = membership_,
                    .pool = *pool_,
                    .pages = pages_,
                    .stripes = stripes_,
                    .supply = supply_,
                    .writable_share = writable_share_,
                    .provider = provider_},
                   configuration.lease),
      flusher_(std::make_unique<Flusher>(*this)),
      stripes_(membership_, pool_->arena().header(), pool_->frame_count(), configuration.shards,
               {.frames = held_frames_,
                .home_store = *this,
                .outbox = peers_,
                .books = *flusher_,
                .accesses = *this,
                .recorder = *this}) {
    if (!membership_.is_alone()) stripes_.set_marks(marker_);
    if (pool_->arena().adopted()) adopt();
    recover_if_all_have_reported();
}

Cache::~Cache() = default;

void Cache::on_quiet(Frame& frame, PageId page) {
    stripes_.step(HeldFrames::quiesced(frame, page));
}

void Cache::on_first_use(LossView& view, HostId home) {
    flusher_->count_from_now(view, home);
}

void Cache::prefetch(std::span<const PageId> pages) {
    const std::array<const FrameIndex*, 2> indexes{&pages_.index(), &homes_};
    stripes_.prefetch(pages, indexes);
}

void Cache::acquire(PageId page, Want want, PageAccess& access, FrameId spare) {
    counters_.misses.fetch_add(1, std::memory_order_relaxed);
    protocol::Event event =
        protocol::Event::acquire_of(page, want, reinterpret_cast<protocol::WaiterToken>(&access), spare);
    if (want != Want::shared && home_of(page) == self()) {
        event.store_failed = membership_.refuses_writes_of(page);
        event.no_space = !event.store_failed && !store_.reserve(page).has_value();
    }
    stripes_.wait(event, access);
}

Stripes::Cancelled Cache::cancel(PageAccess& access) {
    return stripes_.cancel(access.page(), reinterpret_cast<protocol::WaiterToken>(&access), access,
                           access.want() != Want::exclusive_no_read);
}

void Cache::served(PageId page) {
    stripes_.step(protocol::Event::about(protocol::Event::Kind::served, page));
}

void Cache::loss_recorded(PageId page, uint32_t generation) {
    stripes_.step(protocol::Event::loss_recorded_of(page, generation));
}

void Cache::marked(PageId page, bool store_failed) {
    stripes_.step(protocol::Event::marked_of(page, store_failed));
}

void Cache::write_back(PageId page, protocol::WaiterToken waiter) {
    stripes_.step(protocol::Event::about(protocol::Event::Kind::write_back, page, waiter));
}

bool Cache::wake(const protocol::Action& action, bool may_resume) {
    PageAccess& access = *reinterpret_cast<PageAccess*>(action.waiter);
    Stripes::leave(access);
    access.wake(action.frame, action.lost);
    if (may_resume && access.shard == Loop::current()) return true;
    access.shard->post(access);
    return false;
}

void Cache::refuse(const protocol::Action& action) {
    PageAccess& access = *reinterpret_cast<PageAccess*>(action.waiter);
    Stripes::leave(access);
    access.post_failed(membership_.refuses_writes_of(action.page) ? Errc::io : Errc::no_space);
}

void Cache::resume(protocol::WaiterToken waiter) {
    reinterpret_cast<PageAccess*>(waiter)->run();
}

size_t Cache::dirty_frame_count() {
    size_t count = 0;
    pages_.dirty_frames().for_each([&](FrameId) { ++count; });
    home_dirty_frames_.for_each([&](FrameId) { ++count; });
    return count;
}

void Cache::abandon() {
    stripes_.abandon();
    supply_.abandon();
    writable_share_.close();
    flusher_->abandon();
    membership_.changed().announce();
}

}  // namespace tarn
