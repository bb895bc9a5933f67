// IdleCheckpointer: tells a store when nobody has written to it for a while. The store then brings pages into place,
// and the next burst of writes finds the journal empty. Until that begins it sleeps.
//
// Belongs to one loop.
#pragma once

#include <chrono>
#include <utility>

#include "tiers/nvme/store.hpp"
#include "utils/loop.hpp"

namespace tarn {

class IdleCheckpointer {
  public:
    IdleCheckpointer(Store& store, Loop& loop) : store_(store), loop_(loop), pause_(loop) { gate_.spawn(run()); }
    // The last call. What the store is at goes on.
    Task<> close() {
        pause_.cancel();
        store_.writes_again().announce();
        co_await gate_.close();
    }

  private:
    static constexpr std::chrono::milliseconds looks_every{200};

    Task<> run() {
        for (uint64_t seen = store_.journal_status().changes; co_await pause_.sleep(looks_every);) {
            const uint64_t writes = store_.writes_again().count();
            const uint64_t now = store_.journal_status().changes;
            if (std::exchange(seen, now) != now) continue;
            store_.catch_up(loop_);
            co_await store_.writes_again().next(writes, loop_);
        }
    }

    Store& store_;
    Loop& loop_;
    Timer pause_;
    Gate gate_;
};

}  // namespace tarn
