// Interrupt: tells a task that nobody waits for its result any more. A task hands it on to the tasks that it awaits on
// the same loop (task.hpp). Whatever may wait for long listens, and ends early with Errc::cancelled.
//
//   Interrupt* const interrupt = co_await this_interrupt;                         // null: nobody will say so
//   const Interrupt::Listener listener(interrupt, [&] { what_we_wait_for.give_up(); });
//
// Belongs to one loop. It outlives the task that carries it, and that task's listeners.
#pragma once

#include <coroutine>
#include <functional>
#include <utility>

#include "utils/assert.hpp"

namespace tarn {

class Interrupt {
  public:
    Interrupt() = default;
    Interrupt(const Interrupt&) = delete;

    class Listener {
      public:
        Listener(Interrupt* interrupt, std::function<void()> heard) : heard_(std::move(heard)) {
            if (!interrupt) return;
            next_ = interrupt->first_;
            link_ = &interrupt->first_;
            if (next_) next_->link_ = &next_;
            interrupt->first_ = this;
            if (!std::exchange(interrupt->awaited_, true)) interrupt->on_awaited();
        }
        Listener(const Listener&) = delete;
        ~Listener() { leave(); }

      private:
        friend class Interrupt;
        void leave() {
            if (!link_) return;
            *link_ = next_;
            if (next_) next_->link_ = link_;
            link_ = nullptr;
        }
        std::function<void()> heard_;
        Listener* next_ = nullptr;
        Listener** link_ = nullptr;
    };

    bool raised() const { return raised_; }
    // Calls each listener once. A listener may destroy the interrupt.
    void raise() {
        bool ended = false;
        raised_ = true;
        ended_ = &ended;
        while (!ended && first_) {
            Listener& listener = *first_;
            listener.leave();
            const std::function<void()> heard = std::move(listener.heard_);
            heard();
        }
        if (!ended) ended_ = nullptr;
    }

  protected:
    ~Interrupt() {
        TARN_ASSERT(!first_);
        if (ended_) *ended_ = true;
    }

  private:
    // Called with the first listener: only from then on has raise() an effect.
    virtual void on_awaited() {}

    Listener* first_ = nullptr;
    bool* ended_ = nullptr;  // while it is raised
    bool raised_ = false;
    bool awaited_ = false;
};

namespace detail {

struct ThisInterrupt {
    struct Awaiter {
        bool await_ready() const noexcept { return false; }
        template <class Promise>
        bool await_suspend(std::coroutine_handle<Promise> self) noexcept {
            interrupt = self.promise().interrupt;
            return false;
        }
        Interrupt* await_resume() const noexcept { return interrupt; }
        Interrupt* interrupt = nullptr;
    };
    Awaiter operator co_await() const noexcept { return {}; }
};

}  // namespace detail

// Awaits to the interrupt that the awaiting task carries.
inline constexpr detail::ThisInterrupt this_interrupt;

// Awaited by a task, which carries it from then on.
class [[nodiscard]] CarryInterrupt {
  public:
    explicit CarryInterrupt(Interrupt& interrupt) : interrupt_(interrupt) {}
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> self) noexcept {
        self.promise().interrupt = &interrupt_;
        return false;
    }
    void await_resume() const noexcept {}

  private:
    Interrupt& interrupt_;
};

}  // namespace tarn
