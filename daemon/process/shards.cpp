#include "daemon/process/shards.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "utils/file_text.hpp"
#include "utils/start_thread.hpp"

namespace tarn {

std::vector<CpuSet> divide(const CpuSet& cpus, size_t shards) {
    const std::span<const unsigned> list = cpus.list();
    std::vector<CpuSet> parts;
    for (size_t i = 0; i < shards && !list.empty(); ++i) {
        if (shards >= list.size()) {
            parts.push_back(CpuSet{list[i % list.size()]});
            continue;
        }
        const size_t begin = i * list.size() / shards;
        const size_t end = (i + 1) * list.size() / shards;
        parts.emplace_back(
            std::vector(list.begin() + static_cast<ptrdiff_t>(begin), list.begin() + static_cast<ptrdiff_t>(end)));
    }
    return parts;
}

Result<std::unique_ptr<Shards>> Shards::create(unsigned count, bool pin) {
    std::unique_ptr<Shards> shards(new Shards());
    TRY(const CpuSet cpus, CpuSet::of_thread());
    if (count == 0) count = static_cast<unsigned>(std::max<size_t>(cpus.size(), 1));
    const std::vector<CpuSet> parts = pin ? divide(cpus, count) : std::vector<CpuSet>();
    const bool courtesy_allowed = pin && proc_is_ours() && ShardThread::may_be_courteous();
    for (unsigned i = 0; i < count; ++i) {
        TRY(std::unique_ptr<Loop> loop, Loop::create());
        if (!parts.empty()) loop->set_cpus(parts[i]);
        shards->loops_.push_back(loop.get());
        shards->shards_.push_back(std::make_unique<ShardThread>(
            *loop, cpus,
            ShardThread::Parts{.most_idle =
                                   [shards = shards.get()](const CpuSet& cpus, Scheduling::Clock::time_point now) {
                                       return shards->idle_cpus_.most_idle(cpus, now);
                                   },
                               .courtesy_allowed = courtesy_allowed,
                               .wake_guard = [shards = shards.get()] { shards->wake_guard(); },
                               .find_share = [shards = shards.get(), i] { return shards->share_of(i); }}));
        shards->owned_.push_back(std::move(loop));
    }
    return shards;
}

Shards::~Shards() {
    stop();
}

Result<> Shards::start() {
    tasks_ = UniqueFd(::open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    std::optional<std::thread> guard = start_thread([this] { this->guard(); });
    if (guard) guard_ = *std::move(guard);
    for (size_t i = 1; i < loops_.size() && guard_.joinable(); ++i) {
        Ended& end = *ends_.emplace_back(std::make_unique<Ended>(*this));
        std::optional<std::thread> thread = start_thread([this, &end, shard = shards_[i].get(), loop = loops_[i]] {
            shard->begin();
            loop->run();
            first().post(end);
        });
        if (!thread) break;
        threads_.push_back(*std::move(thread));
        ++running_;
    }
    if (threads_.size() + 1 < loops_.size() || !guard_.joinable()) {
        stop();
        return fail(Errc::unavailable, EAGAIN,
                    "the system has no thread for each shard: raise the limit of processes (ulimit -u, or TasksMax= of "
                    "the unit), or set fewer shards");
    }
    shards_.front()->begin();
    return {};
}

Task<> Shards::end_others() {
    stop_others();
    while (running_ > 0) co_await has_ended_.wait();
    join_others();
}

void Shards::stop_others() {
    for (size_t i = 1; i < loops_.size(); ++i) loops_[i]->stop();
}

void Shards::join_others() {
    stop_others();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

void Shards::stop() {
    if (!guard_.joinable()) return;
    join_others();
    {
        const std::lock_guard lock(guard_lock_);
        ending_ = true;
    }
    guard_wanted_.notify_one();
    guard_.join();
}

// The guard's affinity is nobody's choice but the kernel's, or that of who set it for the whole process.
ShardThread::Share Shards::share_of(size_t shard) const {
    const pid_t guard = guard_thread_.load();
    const Result<CpuSet> all = guard != 0 ? CpuSet::of_thread(guard) : CpuSet();
    if (!all || all->empty()) return {};
    return {.all = *all, .own = divide(*all, shards_.size())[shard]};
}

void Shards::guard() {
    guard_thread_.store(::gettid());
    std::unique_lock lock(guard_lock_);
    while (!ending_) {
        guard_wanted_.wait(lock, [this] { return ending_ || is_guard_wanted_; });
        is_guard_wanted_ = false;
        // Only a thread that had the time of a pause for its turn can have been kept from it.
        for (bool any = true;
             any && !guard_wanted_.wait_for(lock, ShardThread::guard_pause, [this] { return ending_; });) {
            any = std::ranges::count_if(shards_, [](const auto& shard) { return shard->guard(); }) > 0;
            guard_others();
        }
    }
}

// The kernel's workers of a ring above all, which flush the store.
void Shards::guard_others() {
    for (const pid_t thread : threads_in(tasks_.get(), SIZE_MAX))
        if (std::ranges::none_of(shards_, [&](const auto& shard) { return shard->is(thread); }))
            ShardThread::end_inherited_courtesy(thread);
}

void Shards::wake_guard() {
    {
        const std::lock_guard lock(guard_lock_);
        is_guard_wanted_ = true;
    }
    guard_wanted_.notify_one();
}

}  // namespace tarn
