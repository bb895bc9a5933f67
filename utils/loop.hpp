// Loop: one thread's event loop on its own io_uring. A shard is one Loop on one thread.
//
// Coroutines await operations; an operation lives in the awaiting frame, and its address is the user_data of its
// submission. Submissions are gathered and handed to the kernel a few at a time, the last when the loop next waits.
// A frame is never destroyed with an operation in flight: cancel it, await its completion, then leave.
//
// Everything but post() and stop() belongs to the loop's own thread. Used by every tier and front end.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "utils/cpu_set.hpp"
#include "utils/operation_ring.hpp"
#include "utils/posted_calls.hpp"
#include "utils/result.hpp"
#include "utils/sync.hpp"
#include "utils/task.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class Loop {
  public:
    // The callback of an operation; lives until its last completion. more: further completions follow.
    struct Completion {
        virtual void complete(int32_t result, bool more) = 0;

      protected:
        ~Completion() = default;
    };

    // A call from another thread; lives until it ran.
    using Posted = PostedCalls::Call;

    // entries bounds what one turn submits, not what may be in flight. Errors: io (io_uring is disabled or too old).
    static Result<std::unique_ptr<Loop>> create(unsigned entries = 256);
    // On a ring that the caller made. make_polled: makes the one that polls() is about. Errors: io.
    using MakeRing = std::function<Result<std::unique_ptr<OperationRing>>(unsigned entries)>;
    static Result<std::unique_ptr<Loop>> create(std::unique_ptr<OperationRing> ring,
                                                MakeRing make_polled = make_polled_io_uring);
    Loop(const Loop&) = delete;
    ~Loop();

    static Loop* current() noexcept;
    // For a thread that runs several loops in turns, as their rings hand over: whose turn it is. Null: nobody's.
    static void set_current(Loop* loop) noexcept;

    // Pins memory for the kernel, once, so that reads and writes of files in it need not pin their pages each time.
    // Whole pages; at most once, on the loop's thread, and the memory must outlive the loop. Errors: io (most likely
    // RLIMIT_MEMLOCK): everything works all the same.
    Result<> register_memory(std::span<std::byte> memory);

    // Runs until stop(), then until the gate of spawned tasks is empty. Call once, on the loop's thread.
    void run();
    // Runs turns until task is done: for start-up, shutdown and tests, outside of run().
    template <class T>
    T run_until_done(Task<T> task);

    void stop();              // from any thread
    void post(Posted& call);  // from any thread; wakes the loop if it sleeps

    // Starts a task that the loop owns; run() does not return before it is done. What a posted call spawns once the
    // last task has ended after stop() never starts.
    void spawn(Task<> task) {
        if (!gate_.closed() || gate_.count() > 0) gate_.spawn(std::move(task));
    }
    // After stop(): what is under way still ends, with all that it spawns. It should begin nothing long.
    bool ending() const { return gate_.closed(); }
    // Memory that another process changes. While the loop is awake it looks there at every turn, and that process need
    // not wake it.
    class Watched {
      public:
        // True: something came, and whoever waits for it goes on.
        virtual bool look() = 0;
        // The loop is about to wait: from now on the other process has to wake it, until end_sleep(). False: something
        // has come, and it must not wait.
        virtual bool begin_sleep() = 0;
        virtual void end_sleep() = 0;

      protected:
        ~Watched() = default;
    };
    // On the loop's thread, also from within look().
    void watch(Watched& watched) { watched_.push_back(&watched); }
    void unwatch(Watched& watched) { *std::ranges::find(watched_, &watched) = nullptr; }

    // Calls hook at the end of every turn, before the loop waits; true asks for another turn without waiting.
    void set_idle_hook(bool (*hook)(void*), void* argument) {
        idle_hook_ = hook;
        idle_argument_ = argument;
    }

    class Awaited;
    template <class Prepare>
    class Operation;

    // Each returns an awaitable of Result<size_t>: the kernel's non-negative result, or an io error.
    auto read(int fd, std::span<std::byte> into, uint64_t offset_bytes);
    auto write(int fd, std::span<const std::byte> from, uint64_t offset_bytes);
    auto readv(int fd, std::span<const iovec> into, uint64_t offset_bytes);
    // flags: of pwritev2.
    auto writev(int fd, std::span<const iovec> from, uint64_t offset_bytes, int flags = 0);
    auto fdatasync(int fd);
    auto receive(int fd, std::span<std::byte> into, int flags = 0);
    auto send(int fd, std::span<const std::byte> from, int flags = 0);
    auto accept(int fd, int flags = SOCK_CLOEXEC);
    auto connect(int fd, const sockaddr* address, socklen_t size_bytes);
    // Also completes when the peer has shut down its side, whatever the events are: io_uring always asks for that.
    auto poll(int fd, unsigned events);
    // Until the socket takes bytes again, or is broken. Errors: io, cancelled.
    Task<Result<>> writable(int fd);
    // Submits an operation that has no function above. prepare(io_uring_sqe&) fills in the entry, of 128 bytes.
    template <class Prepare>
    void start(Completion& completion, Prepare&& prepare) {
        io_uring_sqe& sqe = submission();
        prepare(sqe);
        io_uring_sqe_set_data(&sqe, &completion);
    }
    // Awaits to false when cancelled (see Timer).
    auto sleep(std::chrono::nanoseconds duration);

    // As readv, of a file that was opened with O_DIRECT, and without an interrupt: while it is under way the loop does
    // not sleep and asks the device at every turn. Only where polls(). Errors: io; EOPNOTSUPP: this file cannot be read
    // so.
    auto readv_polled(int fd, std::span<const iovec> into, uint64_t offset_bytes);
    // Whether the loop can read so; the kernel may refuse it. On the loop's thread.
    bool polls();

    // Ends every operation that waits on fd; each completes with cancelled.
    void cancel_fd(int fd);
    void cancel(Completion& operation);

    uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }  // any thread

    // How often it waited for the kernel or a call; any thread.
    uint64_t waits() const { return waits_.load(std::memory_order_relaxed); }
    // Calls that other threads posted; any thread.
    uint64_t calls_from_others() const { return calls_from_others_.load(std::memory_order_relaxed); }
    // For front ends: so many requests of clients have come.
    void count_requests(uint64_t count) { requests_.store(requests() + count, std::memory_order_relaxed); }
    uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }  // any thread
    // For front ends: a client that runs on one of cpus() has woken the loop.
    void count_near_wake_up() { ++near_wake_ups_; }
    uint64_t near_wake_ups() const { return near_wake_ups_; }

    // For the fabric: a message of another host has come.
    void count_message() { ++messages_; }
    uint64_t messages() const { return messages_; }

    // For how long to look for completions and calls before the loop sleeps; 0: it sleeps at once. It stops looking,
    // until this is set again, when another thread has used the CPU meanwhile, or nothing came many times in a row. On
    // the loop's thread.
    void look_before_sleep(std::chrono::nanoseconds time) {
        look_ns_.store(static_cast<uint64_t>(time.count()), std::memory_order_relaxed);
        is_contended_ = false;
        vain_looks_ = 0;
    }
    // Whether another thread has ended it.
    bool is_contended() const { return is_contended_; }
    bool looks_before_sleep() const { return look_ns_.load(std::memory_order_relaxed) != 0; }  // any thread

    // The CPUs that the loop's thread is joined to; empty: it runs where the scheduler likes. Any thread; what it
    // refers to stays as it is until the loop's end.
    const CpuSet& cpus() const { return *cpus_.load(std::memory_order_acquire); }
    // By who joins the thread: before it runs, or on it.
    void set_cpus(CpuSet cpus) {
        const auto at = std::ranges::find(all_cpus_, cpus);
        const CpuSet& set = at != all_cpus_.end() ? *at : all_cpus_.emplace_back(std::move(cpus));
        cpus_.store(&set, std::memory_order_release);
    }

  private:
    Loop(std::unique_ptr<OperationRing> ring, MakeRing make_polled)
        : ring_(std::move(ring)), make_polled_ring_(std::move(make_polled)) {}
    io_uring_sqe& submission() { return ring_->next_submission(); }
    void attach();
    void detach();
    void drain(Gate& gate);
    void turn();
    bool reap();
    bool reap(OperationRing& ring);
    bool look_for_work();
    bool look_at_watched();
    bool begin_sleep();
    void end_sleep();
    Task<> watch_wakeups();
    void wake();
    template <class Prepare>
    void start_polled(Completion& completion, Prepare&& prepare) {
        TARN_ASSERT(polled_ring_);
        io_uring_sqe& sqe = polled_ring_->next_submission();
        prepare(sqe);
        io_uring_sqe_set_data(&sqe, &completion);
        ++polled_under_way_;
    }
    // The registered buffer that holds all of bytes; -1: none does.
    int registered_buffer(std::span<const std::byte> bytes) const;

    const std::unique_ptr<OperationRing> ring_;
    const MakeRing make_polled_ring_;
    std::unique_ptr<OperationRing> polled_ring_;  // none before polls() is asked
    bool polled_ring_refused_ = false;
    size_t polled_under_way_ = 0;
    std::span<std::byte> registered_;
    UniqueFd wakeup_;
    uint64_t wakeup_count_ = 0;
    PostedCalls posted_;
    std::atomic<bool> stopping_{false};
    std::atomic<uint64_t> turns_{0};
    std::atomic<uint64_t> waits_{0};
    std::atomic<uint64_t> requests_{0};
    std::atomic<uint64_t> calls_from_others_{0};
    uint64_t near_wake_ups_ = 0;
    uint64_t messages_ = 0;
    std::atomic<uint64_t> look_ns_{0};
    bool is_contended_ = false;
    unsigned vain_looks_ = 0;
    std::list<CpuSet> all_cpus_{CpuSet()};  // that it ever had
    std::atomic<const CpuSet*> cpus_{&all_cpus_.front()};
    bool busy_ = false;              // the idle hook has more to do
    std::vector<Watched*> watched_;  // null: not any more
    bool (*idle_hook_)(void*) = nullptr;
    void* idle_argument_ = nullptr;
    Gate gate_;
    Gate own_gate_;  // the loop's own tasks, which end last
    bool attached_ = false;
    bool detaching_ = false;
};

// An operation that a coroutine awaits.
class Loop::Awaited : public Loop::Completion {
  public:
    explicit Awaited(Loop& loop) : loop_(loop) {}
    bool await_ready() const noexcept { return false; }
    void complete(int32_t result, bool /*more: never*/) final {
        result_ = result;
        handle_.resume();
    }

  protected:
    ~Awaited() = default;

    Loop& loop_;
    std::coroutine_handle<> handle_;
    int32_t result_ = 0;
};

template <class Prepare>
class [[nodiscard]] Loop::Operation final : public Loop::Awaited {
  public:
    Operation(Loop& loop, Prepare prepare, bool is_polled = false)
        : Awaited(loop), prepare_(std::move(prepare)), is_polled_(is_polled) {}
    void await_suspend(std::coroutine_handle<> handle) {
        handle_ = handle;
        if (is_polled_)
            loop_.start_polled(*this, prepare_);
        else
            loop_.start(*this, prepare_);
    }
    Result<size_t> await_resume() const {
        if (result_ >= 0) return static_cast<size_t>(result_);
        if (result_ == -ECANCELED) return fail(Errc::cancelled, ECANCELED, "loop.operation");
        return fail(Errc::io, -result_, "loop.operation");
    }

  private:
    Prepare prepare_;
    const bool is_polled_;
};

inline auto Loop::read(int fd, std::span<std::byte> into, uint64_t offset_bytes) {
    return Operation(*this, [=, buffer = registered_buffer(into)](io_uring_sqe& sqe) {
        const auto size = static_cast<unsigned>(into.size());
        if (buffer < 0)
            io_uring_prep_read(&sqe, fd, into.data(), size, offset_bytes);
        else
            io_uring_prep_read_fixed(&sqe, fd, into.data(), size, offset_bytes, buffer);
    });
}
inline auto Loop::write(int fd, std::span<const std::byte> from, uint64_t offset_bytes) {
    return Operation(*this, [=, buffer = registered_buffer(from)](io_uring_sqe& sqe) {
        const auto size = static_cast<unsigned>(from.size());
        if (buffer < 0)
            io_uring_prep_write(&sqe, fd, from.data(), size, offset_bytes);
        else
            io_uring_prep_write_fixed(&sqe, fd, from.data(), size, offset_bytes, buffer);
    });
}
inline auto Loop::readv(int fd, std::span<const iovec> into, uint64_t offset_bytes) {
    return Operation(*this, [=](io_uring_sqe& sqe) {
        io_uring_prep_readv(&sqe, fd, into.data(), static_cast<unsigned>(into.size()), offset_bytes);
    });
}
// Without registered buffers: their memory counts against RLIMIT_MEMLOCK once for each ring.
inline auto Loop::readv_polled(int fd, std::span<const iovec> into, uint64_t offset_bytes) {
    const auto prepare = [=](io_uring_sqe& sqe) {
        io_uring_prep_readv(&sqe, fd, into.data(), static_cast<unsigned>(into.size()), offset_bytes);
    };
    return Operation(*this, prepare, true);
}
inline auto Loop::writev(int fd, std::span<const iovec> from, uint64_t offset_bytes, int flags) {
    return Operation(*this, [=](io_uring_sqe& sqe) {
        io_uring_prep_writev2(&sqe, fd, from.data(), static_cast<unsigned>(from.size()), offset_bytes, flags);
    });
}
inline auto Loop::fdatasync(int fd) {
    return Operation(*this, [=](io_uring_sqe& sqe) { io_uring_prep_fsync(&sqe, fd, IORING_FSYNC_DATASYNC); });
}
inline auto Loop::receive(int fd, std::span<std::byte> into, int flags) {
    return Operation(*this, [=](io_uring_sqe& sqe) { io_uring_prep_recv(&sqe, fd, into.data(), into.size(), flags); });
}
inline auto Loop::send(int fd, std::span<const std::byte> from, int flags) {
    return Operation(*this, [=](io_uring_sqe& sqe) {
        io_uring_prep_send(&sqe, fd, from.data(), from.size(), flags | MSG_NOSIGNAL);
    });
}
inline auto Loop::accept(int fd, int flags) {
    return Operation(*this, [=](io_uring_sqe& sqe) { io_uring_prep_accept(&sqe, fd, nullptr, nullptr, flags); });
}
inline auto Loop::connect(int fd, const sockaddr* address, socklen_t size_bytes) {
    return Operation(*this, [=](io_uring_sqe& sqe) { io_uring_prep_connect(&sqe, fd, address, size_bytes); });
}
inline auto Loop::poll(int fd, unsigned events) {
    return Operation(*this, [=](io_uring_sqe& sqe) { io_uring_prep_poll_add(&sqe, fd, events); });
}

class [[nodiscard]] Sleep final : public Loop::Awaited {
  public:
    Sleep(Loop& loop, std::chrono::nanoseconds duration)
        : Awaited(loop),
          duration_{.tv_sec = duration.count() / 1'000'000'000, .tv_nsec = duration.count() % 1'000'000'000} {}
    void await_suspend(std::coroutine_handle<> handle) {
        handle_ = handle;
        loop_.start(*this, [this](io_uring_sqe& sqe) { io_uring_prep_timeout(&sqe, &duration_, 0, 0); });
    }
    // False when it was cancelled.
    bool await_resume() const { return result_ != -ECANCELED; }

  private:
    __kernel_timespec duration_;
};

inline auto Loop::sleep(std::chrono::nanoseconds duration) {
    return Sleep(*this, duration);
}

// A timer that another coroutine of the same loop can end for good.
class Timer {
  public:
    explicit Timer(Loop& loop) : loop_(loop) {}
    // False once cancel() was called, also if the time had passed by then. One sleeper at a time.
    Task<bool> sleep(std::chrono::nanoseconds duration) {
        TARN_ASSERT(!sleeping_);
        if (cancelled_) co_return false;
        Sleep sleep(loop_, duration);
        sleeping_ = &sleep;
        const bool expired = co_await sleep;
        sleeping_ = nullptr;
        co_return expired && !cancelled_;
    }
    // The sleep under way ends, and so does every later one: who sleeps time and again may be awake just now, or its
    // time may be over already, and the kernel has nothing left to cancel.
    void cancel() {
        cancelled_ = true;
        if (sleeping_) loop_.cancel(*sleeping_);
    }

  private:
    Loop& loop_;
    Loop::Completion* sleeping_ = nullptr;
    bool cancelled_ = false;
};

// Readiness of a descriptor, edge-triggered, from one submission for all events. wait() reports each event once: use
// the descriptor until it would block, then wait again. One waiter at a time.
class Readiness final : Loop::Completion {
  public:
    Readiness(Loop& loop, int fd, unsigned events) : loop_(loop), fd_(fd), events_(events) {}
    Readiness(const Readiness&) = delete;
    ~Readiness() { TARN_ASSERT(!armed_); }

    class [[nodiscard]] Awaiter {
      public:
        explicit Awaiter(Readiness& readiness) : readiness_(readiness) {}
        bool await_ready() const noexcept { return readiness_.seen_ != 0 || readiness_.error_ != 0; }
        void await_suspend(std::coroutine_handle<> handle) {
            TARN_ASSERT(!readiness_.waiter_);
            readiness_.waiter_ = handle;
            readiness_.arm();
        }
        // The events since the last wait. Errors: io, the kernel refuses to watch; cancelled, see cancel_fd.
        Result<unsigned> await_resume() {
            const int error = std::exchange(readiness_.error_, 0);
            if (error != 0) return fail(error == ECANCELED ? Errc::cancelled : Errc::io, error, "loop.readiness");
            return std::exchange(readiness_.seen_, 0);
        }

      private:
        Readiness& readiness_;
    };
    Awaiter wait() { return Awaiter(*this); }
    // Stops watching. Nobody may be waiting, or wait afterwards.
    Task<> close();

  private:
    void arm();
    void complete(int32_t result, bool more) override;

    Loop& loop_;
    const int fd_;
    const unsigned events_;
    unsigned seen_ = 0;
    int error_ = 0;
    bool armed_ = false;
    std::coroutine_handle<> waiter_;
};

// Lets everything else of this turn go first.
class [[nodiscard]] Yield final : public Loop::Posted {
  public:
    explicit Yield(Loop& loop) : loop_(loop) {}
    bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
        handle_ = handle;
        loop_.post(*this);
    }
    void await_resume() noexcept {}
    void run() override { handle_.resume(); }

  private:
    Loop& loop_;
    std::coroutine_handle<> handle_;
};

template <class T>
T Loop::run_until_done(Task<T> task) {
    struct Run {
        std::optional<T> value;
        static Task<> await(Task<T> task, Run& self) { self.value.emplace(co_await std::move(task)); }
    } run;
    attach();
    spawn(Run::await(std::move(task), run));
    while (!run.value) turn();
    return std::move(*run.value);
}

template <>
inline void Loop::run_until_done(Task<void> task) {
    struct Run {
        static Task<bool> await(Task<> task) {
            co_await std::move(task);
            co_return true;
        }
    };
    run_until_done(Run::await(std::move(task)));
}

}  // namespace tarn
