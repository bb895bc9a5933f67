#include "coherence/cache/cache.hpp"

#include <utility>

namespace tarn {

Result<std::unique_ptr<Cache>> Cache::create(const CacheConfiguration& configuration, Store& store,
                                             std::unique_ptr<Arena> arena) {
    if (!arena) {
        TRY(arena, Arena::create(configuration.frame_count, configuration.nodes, configuration.landing_bytes,
                                 configuration.clients_bytes));
        ArenaHeader& header = arena->header();
        header.store = store.uuid();
        const auto epoch = static_cast<uint32_t>(store.home_epoch());
        header.incarnation = header.epoch = header.last_in_doubt = header.past_known_to = epoch;
        header.intact_since = store.intact_since();
        // On a host alone, only the process that ended can have seen the lost bytes.
        header.memory_was_lost = configuration.hosts.size() > 1 && !store.was_complete();
    }
    return std::unique_ptr<Cache>(new Cache(configuration, store, std::move(arena)));
}

Cache::Cache(const CacheConfiguration& configuration, Store& store, std::unique_ptr<Arena> arena)
    : pool_(std::make_unique<FramePool>(std::move(arena), configuration.nodes)),
      parts_{membership_, store, *pool_, pages_, stripes_, peers_},
      membership_(configuration.self, configuration.hosts, pool_->arena().header(), store),
      peers_(membership_, store, *pool_),
      pages_(*pool_, membership_, Stripes::bits, *this),
      writable_share_(pool_->frame_count()),
      provider_({membership_, peers_, *pool_, pages_, supply_, writable_share_, eviction_}, configuration.shards),
      supply_(*pool_, pages_.replacement(), membership_, peers_, provider_),
      held_frames_({membership_, *pool_, pages_, stripes_, supply_, writable_share_, provider_}, configuration.lease),
      home_store_({parts_, held_frames_, supply_, provider_, flusher_}),
      eviction_({parts_, home_store_.frames(), home_store_.writer(), flusher_}),
      verifiers_(membership_, store),
      flusher_({parts_, home_store_.writer(), verifiers_}),
      accesses_({parts_, home_store_.frames().index(), supply_, writable_share_, provider_, verifiers_, uses_}),
      recorder_(*pool_),
      stripes_(membership_, pool_->arena().header(), pool_->frame_count(), configuration.shards,
               {held_frames_, home_store_, peers_, flusher_, accesses_}, recorder_),
      home_start_({parts_, home_store_, flusher_}),
      inbox_({parts_, supply_, held_frames_, writable_share_, home_store_.frames(), verifiers_, flusher_, home_start_}),
      volume_end_({parts_, home_store_.frames(), home_store_.writer(), home_store_.marker(), home_start_}) {
    store.set_intact_since(membership_.process().first_intact());
    if (!membership_.is_alone()) stripes_.set_marks(home_store_.marker());
    if (pool_->arena().adopted()) {
        Adoption adoption({parts_, held_frames_, home_store_.frames()});
        adopted_page_count_ = adoption.run();
        adopted_receipts_ = adoption.take_receipts();
    }
    home_start_.go_on();
}

Cache::~Cache() = default;

void Cache::set_fabric(Fabric& fabric) {
    peers_.set_fabric(fabric);
    inbox_.register_calls(fabric.calls());
    home_store_.older_copies().register_calls(fabric.calls());
}

size_t Cache::dirty_frame_count() {
    size_t count = 0;
    pages_.dirty_frames().for_each([&](FrameId) { ++count; });
    home_store_.frames().dirty().for_each([&](FrameId) { ++count; });
    return count;
}

void Cache::abandon() {
    stripes_.abandon();
    supply_.abandon();
    writable_share_.close();
    flusher_.abandon();
    membership_.changed().announce();
}

}  // namespace tarn
