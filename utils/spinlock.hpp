// SpinLock: guards a few hundred nanoseconds of work that never waits. Meets BasicLockable.
#pragma once

#include "utils/atomic.hpp"

namespace tarn {

class SpinLock {
  public:
    void lock() {
        for (unsigned spins = 0; locked_.exchange(true, std::memory_order_acquire);) {
            while (locked_.load(std::memory_order_relaxed)) {
                if (++spins < spins_before_yield)
                    pause_cpu();
                else
                    yield_cpu();  // the holder may have lost its CPU
            }
        }
    }
    bool try_lock() { return !locked_.exchange(true, std::memory_order_acquire); }
    void unlock() { locked_.store(false, std::memory_order_release); }

  private:
    static constexpr unsigned spins_before_yield = 200;
    Atomic<bool> locked_{false};
};

}  // namespace tarn
