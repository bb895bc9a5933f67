// ShardThread: a shard's thread as the kernel's scheduler sees it: joined to CPUs, courteous, or released
// (scheduling.hpp).
//
// It looks after itself while it has work: every so many turns it reads what the kernel counted, and changes its mode.
// An idle shard is not woken for that. A courteous thread may be kept from running, and then cannot help itself:
// guard() does, from another thread. Made and used by Shards.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "daemon/process/polling.hpp"
#include "daemon/process/scheduling.hpp"
#include "utils/loop.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class ShardThread {
  public:
    // What the scheduler counted of a thread since it began: /proc/PID/task/TID/schedstat.
    struct Times {
        std::chrono::nanoseconds run{};
        std::chrono::nanoseconds delay{};  // ready to run, and not running
        uint64_t runs = 0;
    };

    // The CPUs that the process may use, and those of them that are the shard's.
    struct Share {
        CpuSet all;
        CpuSet own;
    };
    struct Parts {
        // In percent of the time, lately: of the CPU that idled most; none: it is not known.
        std::function<std::optional<unsigned>(const CpuSet& cpus, Scheduling::Clock::time_point now)> most_idle;
        bool courtesy_allowed = false;      // see may_be_courteous()
        std::function<void()> wake_guard;   // called when guard() is needed
        std::function<Share()> find_share;  // as it is now; without any CPU: as it was
    };

    // The loop outlives it. cpus: all that the process may use.
    ShardThread(Loop& loop, CpuSet cpus, Parts parts) : loop_(loop), cpus_(std::move(cpus)), parts_(std::move(parts)) {}
    ShardThread(const ShardThread&) = delete;

    // On the shard's thread, before its loop runs.
    void begin();

    // Any thread but its own, every guard_pause while it returns true: ends the courtesy of one that gets no CPU, or
    // that has nothing to do.
    static constexpr std::chrono::milliseconds guard_pause{20};
    bool guard();

    // For a thread that is no shard: what a courteous thread makes inherits its class. The caller's class is given to
    // it.
    static void end_inherited_courtesy(pid_t thread);

    const Loop& loop() const { return loop_; }
    bool is(pid_t thread) const { return thread_.load(std::memory_order_relaxed) == thread; }
    // Any thread, once it has begun.
    Scheduling::Mode mode() const {
        const Scheduling::Mode mode = mode_.load(std::memory_order_relaxed);
        const bool is_ordinary = mode == Scheduling::Mode::courteous && !courteous_.load(std::memory_order_relaxed);
        return is_ordinary ? Scheduling::Mode::joined : mode;
    }
    Times times() const;

    // Whether a thread of this process may become of the class SCHED_IDLE and go back.
    static bool may_be_courteous();

  private:
    static constexpr unsigned turns_per_look = 64;
    // The looks of guard() at a thread that makes no turn, until its courtesy ends.
    static constexpr unsigned starving_looks_max = 1;
    static constexpr unsigned quiet_looks_max = 5;

    static bool look_after(void* self);
    void look();
    void follow_cpus(Scheduling::Clock::time_point now);
    void take_share();
    bool is_bound_by_others();
    void leave_alone();
    CpuSet cpus_while_released() const;
    void change_to(Scheduling::Mode mode);
    void set_class(bool courteous);
    bool ends_courtesy();
    void bind(const CpuSet& cpus);

    Loop& loop_;
    CpuSet cpus_;
    const Parts parts_;
    bool may_be_courteous_ = false;
    std::atomic<pid_t> thread_{0};
    int class_before_ = 0;
    UniqueFd schedstat_;

    Scheduling scheduling_;
    Polling polling_;
    std::atomic<Scheduling::Mode> mode_{Scheduling::Mode::joined};
    unsigned turns_until_look_ = turns_per_look;
    Scheduling::Clock::time_point looked_at_;
    Times times_;  // at that time, as what follows
    uint64_t waits_ = 0;
    uint64_t sleeps_ = 0;
    uint64_t requests_ = 0;
    uint64_t near_wake_ups_ = 0;
    uint64_t messages_ = 0;
    CpuSet bound_;
    Scheduling::Clock::time_point followed_at_;
    bool lost_cpus_ = false;   // the kernel refuses to bind us to ours
    bool left_alone_ = false;  // somebody else has set our affinity

    // Guards the class of a courteous thread, and what follows.
    std::mutex class_lock_;
    std::atomic<bool> courteous_{false};
    std::atomic<bool> changing_{false};  // it becomes of that class right now
    bool said_stuck_ = false;
    std::atomic<bool> starved_{false};
    uint64_t turns_seen_ = 0;
    unsigned looks_without_turn_ = 0;
};

}  // namespace tarn
