// Stripes as the model of threads has them: one, with its latch; what a step does, the scenario says.
#pragma once

#include <functional>
#include <mutex>

#include "coherence/protocol/event.hpp"
#include "utils/loop.hpp"
#include "utils/spinlock.hpp"

namespace tarn {

class Stripes {
  public:
    std::function<void(const protocol::Event&)> on_step;

    void step(const protocol::Event& event) { Turn(*this, event.page).step(event); }
    static bool abandoned() { return false; }

    class Turn {
      public:
        Turn(Stripes& stripes, PageId) : stripes_(stripes), latch_(stripes.latch_) {}
        void step(const protocol::Event& event) const { stripes_.on_step(event); }

      private:
        Stripes& stripes_;
        std::lock_guard<SpinLock> latch_;
    };

  private:
    SpinLock latch_;
};

}  // namespace tarn
