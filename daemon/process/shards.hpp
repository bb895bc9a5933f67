// Shards: the daemon's loops, each on a thread of its own and joined to CPUs of its own.
//
// The CPUs that the process may use are divided among the shards, again when they change, so each CPU has a shard. Who
// serves a request where it was made asks Loop::cpus(). Each thread looks after itself (shard_thread.hpp); one more
// guards those that may be kept from running, and sleeps while there are none. The first shard runs on the thread of
// the caller. Made by Node.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "daemon/process/idle_cpus.hpp"
#include "daemon/process/shard_thread.hpp"
#include "utils/cpu_set.hpp"
#include "utils/loop.hpp"
#include "utils/result.hpp"
#include "utils/sync.hpp"
#include "utils/task.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

// The CPUs of each shard: as many for each as can be, neighbours together. More shards than CPUs share them.
std::vector<CpuSet> divide(const CpuSet& cpus, size_t shards);

class Shards {
  public:
    // count: 0 is one for each CPU that the process may use. pin: they are joined to CPUs. Errors: io.
    static Result<std::unique_ptr<Shards>> create(unsigned count, bool pin);
    Shards(const Shards&) = delete;
    ~Shards();

    const std::vector<Loop*>& loops() const { return loops_; }
    Loop& first() const { return *loops_.front(); }

    const std::vector<std::unique_ptr<ShardThread>>& threads() const { return shards_; }

    // Joins the calling thread, which is the first shard's, and starts the others'. Errors: unavailable (the system has
    // no thread for each); then none runs.
    Result<> start();
    // On the first loop, before it ends: what is under way on the others may still have to wait for this one.
    Task<> end_others();
    // Once the first loop has ended: what is left.
    void stop();

  private:
    // On the first loop: the thread of another one has ended.
    struct Ended final : Loop::Posted {
        explicit Ended(Shards& of) : shards(of) {}
        void run() override {
            --shards.running_;
            shards.has_ended_.notify_all();
        }
        Shards& shards;
    };

    Shards() = default;
    ShardThread::Share share_of(size_t shard) const;
    void guard();
    void guard_others();
    void stop_others();
    void join_others();
    void wake_guard();

    IdleCpus idle_cpus_;
    std::vector<std::unique_ptr<Loop>> owned_;
    std::vector<Loop*> loops_;
    std::vector<std::unique_ptr<ShardThread>> shards_;
    std::vector<std::thread> threads_;  // of every shard but the first
    std::vector<std::unique_ptr<Ended>> ends_;
    size_t running_ = 0;
    Event has_ended_;

    UniqueFd tasks_;  // of this process
    std::thread guard_;
    std::atomic<pid_t> guard_thread_{0};
    std::mutex guard_lock_;
    std::condition_variable guard_wanted_;
    bool is_guard_wanted_ = false;
    bool ending_ = false;
};

}  // namespace tarn
