// Task<T>: a lazy coroutine, owned by one awaiter and awaited once; it runs on the loop of the thread that awaits it.
//
// Awaiting resumes the child on the spot; a child that finishes at once never suspends its parent, so a loop over
// cache hits does not grow the stack, whatever the compiler makes of tail calls (debug and sanitizer builds make
// none). A task that was started must finish before it is destroyed: whoever cancels it awaits it. A task that carries
// an Interrupt hands it on to those that it awaits (interrupt.hpp).
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "utils/assert.hpp"

namespace tarn {

class Interrupt;
template <class T = void>
class Task;

namespace detail {

struct TaskPromiseBase {
    std::coroutine_handle<> continuation;
    Interrupt* interrupt = nullptr;

    struct FinalAwaiter {
        bool await_ready() noexcept { return false; }
        template <class Promise>
        void await_suspend(std::coroutine_handle<Promise> self) noexcept {
            // No continuation: the parent is still inside await_suspend and sees that we are done.
            if (const auto parent = self.promise().continuation) parent.resume();
        }
        void await_resume() noexcept {}
    };

    std::suspend_always initial_suspend() noexcept { return {}; }
    FinalAwaiter final_suspend() noexcept { return {}; }
    [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
};

template <class T>
struct TaskPromise : TaskPromiseBase {
    std::optional<T> value;

    Task<T> get_return_object() noexcept;
    template <class U>
    void return_value(U&& returned) {
        value.emplace(std::forward<U>(returned));
    }
    T take() { return std::move(*value); }
};

template <>
struct TaskPromise<void> : TaskPromiseBase {
    Task<void> get_return_object() noexcept;
    void return_void() noexcept {}
    void take() noexcept {}
};

}  // namespace detail

template <class T>
class [[nodiscard]] Task {
  public:
    using promise_type = detail::TaskPromise<T>;
    using Handle = std::coroutine_handle<promise_type>;

    Task() = default;
    explicit Task(Handle handle) : handle_(handle) {}
    Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
    Task& operator=(Task&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Task() {
        if (handle_) handle_.destroy();
    }

    class Awaiter {
      public:
        explicit Awaiter(Handle child) : child_(child) {}
        bool await_ready() noexcept { return false; }
        template <class Promise>
        bool await_suspend(std::coroutine_handle<Promise> parent) {
            if constexpr (requires { parent.promise().interrupt; })
                child_.promise().interrupt = parent.promise().interrupt;
            child_.resume();
            if (child_.done()) return false;
            child_.promise().continuation = parent;
            return true;
        }
        T await_resume() { return child_.promise().take(); }

      private:
        Handle child_;
    };
    Awaiter operator co_await() && {
        TARN_ASSERT(handle_);
        return Awaiter(handle_);
    }

  private:
    Handle handle_;
};

namespace detail {

template <class T>
Task<T> TaskPromise<T>::get_return_object() noexcept {
    return Task<T>(std::coroutine_handle<TaskPromise<T>>::from_promise(*this));
}
inline Task<void> TaskPromise<void>::get_return_object() noexcept {
    return Task<void>(std::coroutine_handle<TaskPromise<void>>::from_promise(*this));
}

// Owns itself: starts at once, and its frame goes when it ends.
struct Detached {
    struct promise_type {
        Detached get_return_object() noexcept { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
    };
};

}  // namespace detail
}  // namespace tarn
