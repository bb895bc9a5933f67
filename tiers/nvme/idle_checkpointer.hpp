// IdleCheckpointer: tells a store when nobody has written to it for a while. The store then brings pages into place,
// and the next burst of writes finds the journal empty.
//
// Belongs to one loop.
#pragma once

#include "tiers/nvme/store.hpp"
#include "utils/loop.hpp"

namespace tarn {

class IdleCheckpointer {
  public:
    IdleCheckpointer(Store& store, Loop& loop) : store_(store), loop_(loop), pause_(loop) { gate_.spawn(run()); }
    // The last call. What the store is at goes on.
    Task<> close();

  private:
    Task<> run();

    Store& store_;
    Loop& loop_;
    Timer pause_;
    Gate gate_;
};

}  // namespace tarn
