// Waiting between coroutines of one loop: Gate, Event, Semaphore. None of them is for more than one thread.
#pragma once

#include <coroutine>
#include <cstddef>
#include <utility>

#include "utils/assert.hpp"
#include "utils/task.hpp"

namespace tarn {

namespace detail {

// First come, first served; the nodes live in the awaiting frames.
class WaitQueue {
  public:
    struct Node {
        std::coroutine_handle<> waiter;
        Node* next = nullptr;
    };
    void push(Node& node) {
        node.next = nullptr;
        *(last_ ? &last_->next : &first_) = &node;
        last_ = &node;
    }
    Node* pop() {
        Node* const node = first_;
        if (node && !(first_ = node->next)) last_ = nullptr;
        return node;
    }
    // Wakes those who wait now; one who waits again meanwhile is not woken twice.
    void wake_all() {
        WaitQueue woken = std::exchange(*this, {});
        while (Node* const node = woken.pop()) node->waiter.resume();
    }
    bool empty() const { return !first_; }

    // Takes a place at the end of the queue until it is woken.
    class Awaiter : Node {
      public:
        explicit Awaiter(WaitQueue& queue) : queue_(queue) {}
        bool await_ready() const noexcept { return false; }
        void await_suspend(std::coroutine_handle<> handle) {
            waiter = handle;
            queue_.push(*this);
        }
        void await_resume() const noexcept {}

      private:
        WaitQueue& queue_;
    };

  private:
    Node* first_ = nullptr;
    Node* last_ = nullptr;
};

}  // namespace detail

// Wakes everybody who waits, once per call.
class Event {
  public:
    Event() = default;
    Event(const Event&) = delete;
    ~Event() { TARN_ASSERT(queue_.empty()); }

    void notify_all() { queue_.wake_all(); }

    auto wait() { return detail::WaitQueue::Awaiter(queue_); }

  private:
    detail::WaitQueue queue_;
};

// Counts free places; acquire waits its turn for one.
class Semaphore {
  public:
    explicit Semaphore(size_t free) : free_(free) {}
    Semaphore(const Semaphore&) = delete;
    ~Semaphore() { TARN_ASSERT(queue_.empty()); }

    void release() {
        if (auto* const node = queue_.pop())
            node->waiter.resume();  // the place passes on without becoming free
        else
            ++free_;
    }

    class Awaiter : public detail::WaitQueue::Awaiter {
      public:
        explicit Awaiter(Semaphore& semaphore) : detail::WaitQueue::Awaiter(semaphore.queue_), semaphore_(semaphore) {}
        bool await_ready() const noexcept {
            if (semaphore_.free_ == 0) return false;
            --semaphore_.free_;
            return true;
        }

      private:
        Semaphore& semaphore_;
    };
    Awaiter acquire() { return Awaiter(*this); }

  private:
    size_t free_;
    detail::WaitQueue queue_;
};

// Counts what is in flight; shutdown closes it and waits until nothing is. Whatever is inside may still let more in: it
// is part of what is in flight.
class Gate {
  public:
    Gate() = default;
    Gate(const Gate&) = delete;
    ~Gate() { TARN_ASSERT(count_ == 0); }

    bool closed() const { return closed_; }
    size_t count() const { return count_; }
    void enter() {
        TARN_ASSERT(!closed_ || count_ > 0);
        ++count_;
    }
    void leave() {
        TARN_ASSERT(count_ > 0);
        if (--count_ == 0 && closed_) empty_.notify_all();
    }
    Task<> close() {
        closed_ = true;
        while (count_ > 0) co_await empty_.wait();
    }

    // Inside the gate, as long as this lives.
    class Inside {
      public:
        explicit Inside(Gate& gate) : gate_(gate) { gate.enter(); }
        Inside(const Inside&) = delete;
        ~Inside() { gate_.leave(); }

      private:
        Gate& gate_;
    };

    // Starts task at once, inside the gate, and lets it run to its end.
    void spawn(Task<> task) {
        enter();
        run(*this, std::move(task));
    }

  private:
    static detail::Detached run(Gate& gate, Task<> task) {
        co_await std::move(task);
        task = Task<>();  // its frame goes before the gate may open
        gate.leave();
    }

    size_t count_ = 0;
    bool closed_ = false;
    Event empty_;
};

}  // namespace tarn
