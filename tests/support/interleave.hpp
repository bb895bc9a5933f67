// Interleaving: runs one function an instruction at a time on its own thread, and another one between two of its
// instructions. Trying each place in turn tries every order that one CPU can produce.
//
// The stepped code must hold no lock that the other function needs, which would wait for a stopped thread. If it does,
// it is continued after a moment, and that place is not tried. x86 only, like the rest of tarn.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <thread>

#include "utils/assert.hpp"

namespace tarn {

class Interleaving {
  public:
    explicit Interleaving(std::chrono::milliseconds timeout = std::chrono::milliseconds(200)) : timeout_(timeout) {
        struct sigaction action{};
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO;
        TARN_ASSERT(::sigaction(SIGTRAP, &action, &trap_before_) == 0);
        TARN_ASSERT(::sigaction(SIGSEGV, &action, &fault_before_) == 0);
    }
    Interleaving(const Interleaving&) = delete;
    ~Interleaving() {
        ::sigaction(SIGTRAP, &trap_before_, nullptr);
        ::sigaction(SIGSEGV, &fault_before_, nullptr);
    }

    // Runs the other function on this thread, before the instruction of that number, counted from the first access to
    // the watched memory or its neighbours (null: from the beginning). False: there are fewer instructions.
    template <class Stepped, class Other>
    bool run(unsigned at, const void* watched, Stepped&& stepped, Other&& other) {
        at_ = at;
        watched_ = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(watched) & ~(page - 1));
        stands_ = other_ended_ = ended_ = false;
        std::thread thread([&] {
            stepping_ = this;
            if (watched_)
                protect(PROT_NONE);
            else
                ::raise(SIGTRAP);
            stepped();
            stepping_ = nullptr;  // stop stepping
            ended_ = true;
        });
        while (!stands_ && !ended_) std::this_thread::yield();
        const bool came_there = stands_;
        if (came_there) {
            other();
            other_ended_ = true;
        }
        thread.join();
        if (watched_) protect(PROT_READ | PROT_WRITE);
        return came_there;
    }

  private:
    static constexpr greg_t trap_flag = 0x100;
    static constexpr uintptr_t page = 4096;

    static void on_signal(int signal, siginfo_t*, void* context) {
        greg_t& flags = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL];
        Interleaving* const self = stepping_;
        if (!self && signal == SIGSEGV) {  // not caused by us
            std::signal(SIGSEGV, SIG_DFL);
        } else if (!self) {
            flags &= ~trap_flag;
        } else if (signal == SIGSEGV) {
            self->protect(PROT_READ | PROT_WRITE);
            flags |= trap_flag;
        } else if (self->at_-- > 0) {
            flags |= trap_flag;
        } else {
            self->stand();
            stepping_ = nullptr;
            flags &= ~trap_flag;
        }
    }
    void protect(int allowed) const { TARN_ASSERT(::mprotect(watched_, page, allowed) == 0); }
    void stand() {
        const auto until = std::chrono::steady_clock::now() + timeout_;
        stands_ = true;
        while (!other_ended_ && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    }

    inline static thread_local Interleaving* stepping_ = nullptr;

    const std::chrono::milliseconds timeout_;
    void* watched_ = nullptr;
    unsigned at_ = 0;
    std::atomic<bool> stands_{false};
    std::atomic<bool> other_ended_{false};
    std::atomic<bool> ended_{false};
    struct sigaction trap_before_{};
    struct sigaction fault_before_{};
};

}  // namespace tarn
