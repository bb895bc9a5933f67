#include "daemon/process/shard_thread.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>
#include <thread>

#include "utils/file_text.hpp"
#include "utils/log.hpp"
#include "utils/start_thread.hpp"

namespace tarn {

namespace {

// How often a thread looks whether it is still bound to what it chose.
constexpr std::chrono::seconds affinity_time{1};

int set_class_of(pid_t thread, int sched_class) {
    const sched_param parameters{};
    return ::sched_setscheduler(thread, sched_class, &parameters);
}

bool has_time_sharing(int sched_class) {
    return sched_class == SCHED_OTHER || sched_class == SCHED_BATCH;
}

// How often the calling thread has left its CPU by itself.
uint64_t times_slept() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return static_cast<uint64_t>(usage.ru_nvcsw);
}

// The kernel gives the requests of a thread that has chosen none the priority of its scheduling class: a courteous
// thread's would wait until a disk has nothing else to do, up to ten seconds. So it has the one that it has now for
// good, and what it makes inherits that. False: the kernel refused.
bool keep_io_priority() {
    const long priority = ::syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
    if (priority < 0) return false;
    if (IOPRIO_PRIO_CLASS(priority) == IOPRIO_CLASS_IDLE) return true;
    const int level = (::getpriority(PRIO_PROCESS, 0) + 20) / 5;  // as the kernel derives it
    const long chosen =
        IOPRIO_PRIO_CLASS(priority) == IOPRIO_CLASS_NONE ? IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, level) : priority;
    return ::syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, chosen) == 0;
}

}  // namespace

// In a thread that ends right after: one that cannot go back would stay what it became. False without a thread.
bool ShardThread::may_be_courteous() {
    bool may = false;
    std::optional<std::thread> trial = start_thread([&may] {
        const int before = ::sched_getscheduler(0);
        may = has_time_sharing(before) && set_class_of(0, SCHED_IDLE) == 0 && set_class_of(0, before) == 0;
    });
    if (trial) trial->join();
    return may;
}

void ShardThread::begin() {
    thread_ = ::gettid();
    class_before_ = ::sched_getscheduler(0);
    may_be_courteous_ = parts_.courtesy_allowed && keep_io_priority();
    schedstat_ = UniqueFd(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
    if (loop_.cpus().empty()) return;
    bind(loop_.cpus());
    looked_at_ = followed_at_ = Scheduling::Clock::now();
    times_ = times();
    loop_.set_idle_hook(&ShardThread::look_after, this);
}

// Called by the loop at the end of each turn.
bool ShardThread::look_after(void* self) {
    auto* const thread = static_cast<ShardThread*>(self);
    if (--thread->turns_until_look_ == 0) thread->look();
    return false;
}

void ShardThread::look() {
    turns_until_look_ = turns_per_look;
    const auto now = Scheduling::Clock::now();
    if (now - looked_at_ < Scheduling::window_min) return;
    const Times times = this->times();
    const uint64_t sleeps = times_slept();
    Scheduling::Window window{.time = now - looked_at_,
                              .run = times.run - times_.run,
                              .delay = times.delay - times_.delay,
                              .runs = times.runs - times_.runs,
                              .waits = loop_.waits() - waits_,
                              .sleeps = sleeps - sleeps_,
                              .requests = loop_.requests() - requests_,
                              .near_wake_ups = may_be_courteous_ ? loop_.near_wake_ups() - near_wake_ups_ : 0,
                              .starved = starved_.exchange(false)};
    const uint64_t work = window.requests + loop_.messages() - messages_;
    if (loop_.looks_before_sleep())
        window.waits = window.sleeps = std::max(window.waits, work);  // it would have waited for each
    Polling::Window polling{.time = window.time,
                            .run = window.run,
                            .delay = window.delay,
                            .work = work,
                            .near_wake_ups = loop_.near_wake_ups() - near_wake_ups_,
                            .is_contended = loop_.is_contended()};
    looked_at_ = now;
    times_ = times;
    messages_ = loop_.messages();
    waits_ = loop_.waits();
    sleeps_ = sleeps;
    requests_ = loop_.requests();
    near_wake_ups_ = loop_.near_wake_ups();
    if (Scheduling::asks_for_other_cpus(window))
        window.others_idle_percent = parts_.most_idle(cpus_ - loop_.cpus(), now);
    if (now - followed_at_ >= affinity_time) follow_cpus(now);
    if (!left_alone_) change_to(scheduling_.next(window, now));
    polling.is_joined = mode() == Scheduling::Mode::joined && !left_alone_;
    loop_.look_before_sleep(polling_.next(polling, now));
}

// The kernel takes us off CPUs that go offline or leave our cpuset, and refuses to bind us there until they are back.
// If it does not refuse, it was somebody who wants us elsewhere.
void ShardThread::follow_cpus(Scheduling::Clock::time_point now) {
    followed_at_ = now;
    take_share();
    const Result<CpuSet> found = CpuSet::of_thread();
    if (!found || left_alone_ || mode() == Scheduling::Mode::released || *found == (bound_ & *found)) return;
    const bool had_lost = lost_cpus_;
    const Result<> bound = loop_.cpus().bind();
    lost_cpus_ = !bound;  // tried again in a second
    if (!lost_cpus_ && !had_lost && found->bind()) leave_alone();
}

// Whether somebody else has set our affinity since we did. The kernel takes CPUs away from the whole process.
bool ShardThread::is_bound_by_others() {
    take_share();
    const Result<CpuSet> found = CpuSet::of_thread();
    return found && !lost_cpus_ && *found != bound_;
}

void ShardThread::leave_alone() {
    left_alone_ = true;
    mode_.store(Scheduling::Mode::joined, std::memory_order_relaxed);
    set_class(false);
    loop_.set_cpus({});
    log::info("a shard's affinity was set from outside: it is not joined to a CPU any more");
}

// The process may use other CPUs than before.
void ShardThread::take_share() {
    Share share = parts_.find_share();
    if (share.own.empty() || (share.all == cpus_ && (left_alone_ || share.own == loop_.cpus()))) return;
    cpus_ = std::move(share.all);
    loop_.set_cpus(std::move(share.own));
    left_alone_ = false;
    bind(mode() == Scheduling::Mode::released ? cpus_while_released() : loop_.cpus());
}

// Beside its clients it leaves them its own.
CpuSet ShardThread::cpus_while_released() const {
    CpuSet others = cpus_ - loop_.cpus();
    return scheduling_.is_beside() && !others.empty() ? others : cpus_;
}

void ShardThread::change_to(Scheduling::Mode mode) {
    using Mode = Scheduling::Mode;
    const Mode before = mode_.load(std::memory_order_relaxed);
    const bool binds = mode != before && (mode == Mode::released || before == Mode::released);
    if (binds && is_bound_by_others()) return leave_alone();
    mode_.store(mode, std::memory_order_relaxed);
    if (before == Mode::released && mode != before) bind(loop_.cpus());
    if (mode == Mode::released && mode != before) bind(cpus_while_released());
    set_class(mode == Mode::courteous);  // guard() may have ended it meanwhile
}

// A matter of speed only: refused, the scheduler places the thread.
void ShardThread::bind(const CpuSet& cpus) {
    bound_ = cpus;
    lost_cpus_ = !cpus.bind();
}

// The guard watches before we are courteous, for then we may not come to wake it.
void ShardThread::set_class(bool courteous) {
    if (courteous_.load(std::memory_order_relaxed) == courteous) return;
    if (!courteous) {
        set_class_of(0, class_before_);
        courteous_.store(false);
        return;
    }
    {
        const std::lock_guard guard(class_lock_);
        changing_.store(true);
        courteous_.store(true);
        turns_seen_ = loop_.turns();
        looks_without_turn_ = 0;
    }
    parts_.wake_guard();
    if (set_class_of(0, SCHED_IDLE) != 0) courteous_.store(false);
    changing_.store(false);
    if (courteous_.load()) return;
    set_class_of(0, class_before_);  // the guard has ended it meanwhile, or the kernel refused
}

bool ShardThread::guard() {
    const std::unique_lock guard(class_lock_, std::try_to_lock);
    if (!guard) return true;                 // it is about to become courteous, and is an ordinary thread still
    const bool changing = changing_.load();  // before its class is looked at: it may change then
    if (!courteous_.load()) return ends_courtesy() || changing;
    if (const uint64_t turns = loop_.turns(); turns != turns_seen_) {
        turns_seen_ = turns;
        looks_without_turn_ = 0;
        return true;
    }
    const std::string state = text_of(fmt::format("/proc/self/task/{}/stat", thread_.load()));
    const size_t name_end = state.rfind(')');
    const bool ready = name_end != std::string::npos && state.substr(name_end + 2, 1) == "R";
    if (++looks_without_turn_ < (ready ? starving_looks_max : quiet_looks_max)) return true;
    courteous_.store(false);
    starved_.store(ready);
    return ends_courtesy() || changing;
}

// True: it is of that class still. It may have become so since its courtesy ended, or may not leave it any more.
bool ShardThread::ends_courtesy() {
    const pid_t thread = thread_.load();
    if (::sched_getscheduler(thread) != SCHED_IDLE || set_class_of(thread, class_before_) == 0) return false;
    if (!std::exchange(said_stuck_, true))
        log::warning("a shard is of the class SCHED_IDLE, and may not leave it any more: {}; was RLIMIT_NICE lowered?",
                     std::strerror(errno));
    return true;
}

void ShardThread::end_inherited_courtesy(pid_t thread) {
    if (::sched_getscheduler(thread) == SCHED_IDLE) set_class_of(thread, ::sched_getscheduler(0));
}

ShardThread::Times ShardThread::times() const {
    char text[128];
    const ssize_t size = schedstat_ ? ::pread(schedstat_.get(), text, sizeof text - 1, 0) : 0;
    text[std::max<ssize_t>(size, 0)] = '\0';
    std::istringstream fields(text);
    uint64_t run = 0;
    uint64_t delay = 0;
    Times times;
    fields >> run >> delay >> times.runs;
    times.run = std::chrono::nanoseconds(run);
    times.delay = std::chrono::nanoseconds(delay);
    return times;
}

}  // namespace tarn
