// Atomic: what threads share without a latch, and what they do while they wait for each other.
//
// The same as std::atomic and its fences. The names are ours so that the model of threads (tests/sim/threads) can put
// a file of its own first on the include path, and run the code that is shipped through all orders of its threads.
// Code that the model runs uses these names; elsewhere std::atomic will do.
#pragma once

#include <immintrin.h>
#include <sched.h>

#include <atomic>
#include <shared_mutex>

namespace tarn {

template <class T>
using Atomic = std::atomic<T>;
using SharedMutex = std::shared_mutex;

inline void thread_fence(std::memory_order order) {
    std::atomic_thread_fence(order);
}

// Between two looks at what another thread is about to change.
inline void pause_cpu() {
    _mm_pause();
}
// The same if that thread may have lost its CPU.
inline void yield_cpu() {
    ::sched_yield();
}

}  // namespace tarn
