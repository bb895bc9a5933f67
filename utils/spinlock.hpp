// SpinLock: guards a few hundred nanoseconds of work that never waits. Meets BasicLockable.
#pragma once

#include <immintrin.h>
#include <sched.h>

#include <atomic>

namespace tarn {

class SpinLock {
  public:
    void lock() {
        for (unsigned spins = 0; locked_.exchange(true, std::memory_order_acquire);) {
            while (locked_.load(std::memory_order_relaxed)) {
                if (++spins < spins_before_yield)
                    _mm_pause();
                else
                    ::sched_yield();  // the holder may have lost its CPU
            }
        }
    }
    bool try_lock() { return !locked_.exchange(true, std::memory_order_acquire); }
    void unlock() { locked_.store(false, std::memory_order_release); }

  private:
    static constexpr unsigned spins_before_yield = 200;
    std::atomic<bool> locked_{false};
};

}  // namespace tarn
