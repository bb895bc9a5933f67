// Atomic and its fences as the model of threads has them: each operation is a step (tests/sim/threads/model.hpp). Found
// before the file that is shipped, and as large as what it stands for.
#pragma once

#include <concepts>
#include <cstdint>
#include <shared_mutex>
#include <type_traits>

#include "tests/sim/threads/model.hpp"

namespace tarn {

template <class T>
class Atomic {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>);

  public:
    Atomic() : Atomic(T{}) {}
    Atomic(T value) : value_(value) { threads::forget(this); }  // as std::atomic, from its value
    Atomic(const Atomic&) = delete;
    Atomic& operator=(const Atomic&) = delete;

    T load(std::memory_order order = std::memory_order_seq_cst) const {
        return from_bits(threads::load(this, bits_of(value_), order));
    }
    void store(T value, std::memory_order order = std::memory_order_seq_cst) {
        threads::store(this, bits_of(value_), bits_of(value), order);
        value_ = value;
    }
    T exchange(T value, std::memory_order order = std::memory_order_seq_cst) {
        return update(order, [&](T) { return value; });
    }
    bool compare_exchange_strong(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) {
        const T before = from_bits(threads::begin_update(this, bits_of(value_), order));
        if (bits_of(before) != bits_of(expected)) {
            expected = before;
            return false;
        }
        value_ = desired;
        threads::commit_update(this, bits_of(desired), order);
        return true;
    }
    bool compare_exchange_weak(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) {
        return compare_exchange_strong(expected, desired, order);
    }
    T fetch_add(T by, std::memory_order order = std::memory_order_seq_cst)
        requires std::integral<T>
    {
        return update(order, [&](T before) { return static_cast<T>(before + by); });
    }
    T fetch_sub(T by, std::memory_order order = std::memory_order_seq_cst)
        requires std::integral<T>
    {
        return update(order, [&](T before) { return static_cast<T>(before - by); });
    }
    T fetch_or(T bits, std::memory_order order = std::memory_order_seq_cst)
        requires std::integral<T>
    {
        return update(order, [&](T before) { return static_cast<T>(before | bits); });
    }
    T fetch_and(T bits, std::memory_order order = std::memory_order_seq_cst)
        requires std::integral<T>
    {
        return update(order, [&](T before) { return static_cast<T>(before & bits); });
    }

  private:
    static uint64_t bits_of(T value) {
        if constexpr (std::is_pointer_v<T>)
            return reinterpret_cast<uint64_t>(value);
        else
            return static_cast<uint64_t>(value);
    }
    static T from_bits(uint64_t bits) {
        if constexpr (std::is_pointer_v<T>)
            return reinterpret_cast<T>(bits);
        else
            return static_cast<T>(bits);
    }
    template <class Change>
    T update(std::memory_order order, Change&& change) {
        const T before = from_bits(threads::begin_update(this, bits_of(value_), order));
        value_ = change(before);
        threads::commit_update(this, bits_of(value_), order);
        return before;
    }

    T value_;  // the newest
};

class SharedMutex {
  public:
    void lock() {
        threads::wait_until("has locked", [this] { return readers_ == 0 && !writer_; });
        take();
    }
    bool try_lock() {
        threads::wait_until("has tried to lock", [] { return true; });
        if (readers_ != 0 || writer_) return false;
        take();
        return true;
    }
    void unlock() {
        threads::wait_until("has unlocked", [] { return true; });
        writer_ = false;
        threads::memory().release(threads::current_thread(), released_);
    }
    void lock_shared() {
        threads::wait_until("has locked with others", [this] { return !writer_; });
        ++readers_;
        threads::memory().acquire(threads::current_thread(), released_);
    }
    void unlock_shared() {
        threads::wait_until("has unlocked", [] { return true; });
        --readers_;
        threads::memory().release(threads::current_thread(), released_);
    }

  private:
    void take() {
        writer_ = true;
        threads::memory().acquire(threads::current_thread(), released_);
    }
    unsigned readers_ = 0;
    bool writer_ = false;
    threads::Clock released_;
};

inline void thread_fence(std::memory_order order) {
    threads::fence(order);
}
inline void pause_cpu() {
    threads::pause();
}
inline void yield_cpu() {
    threads::pause();
}

}  // namespace tarn
