// PostedCalls: calls that any thread leaves for the owner of a loop, and whether the owner sleeps. Who adds a call for
// one that sleeps has to wake it; how, is the loop's business (Loop).
//
// No call is forgotten: the owner announces its sleep before it looks once more, and a call is added before its thread
// asks for the announcement. So one of them sees the other.
#pragma once

#include <utility>

#include "utils/atomic.hpp"

namespace tarn {

class PostedCalls {
  public:
    // A call from another thread; lives until it ran.
    struct Call {
        virtual void run() = 0;
        Call* next = nullptr;

      protected:
        ~Call() = default;
    };

    // Any thread. True: the owner sleeps, or is about to.
    [[nodiscard]] bool add(Call& call) {
        Call* head = first_.load(std::memory_order_relaxed);
        do {
            call.next = head;
        } while (!first_.compare_exchange_weak(head, &call, std::memory_order_seq_cst));
        return sleeping_.load(std::memory_order_seq_cst);
    }

    // The rest is for the owner.

    bool any() const { return first_.load(std::memory_order_relaxed) != nullptr; }

    // True: nothing is here, and it may sleep until it is woken.
    [[nodiscard]] bool begin_sleep() {
        sleeping_.store(true, std::memory_order_seq_cst);
        return !first_.load(std::memory_order_seq_cst);
    }
    void end_sleep() { sleeping_.store(false, std::memory_order_relaxed); }

    // Those that are here now, in the order they came: they are kept as a stack.
    void run_all() {
        Call* stack = first_.exchange(nullptr, std::memory_order_acquire);
        Call* queue = nullptr;
        while (stack) queue = std::exchange(stack, std::exchange(stack->next, queue));
        while (queue) std::exchange(queue, queue->next)->run();
    }

  private:
    Atomic<Call*> first_{nullptr};
    Atomic<bool> sleeping_{false};
};

}  // namespace tarn
