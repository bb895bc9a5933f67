#include "frontends/nbd/client_cpu.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "utils/cpu_set.hpp"
#include "utils/file_text.hpp"

namespace tarn::nbd {

namespace {

constexpr unsigned field_of_cpu = 39;  // on which the thread ran last
constexpr size_t stat_size_max = 1024;

// The nanoseconds that a thread has run.
uint64_t run_time(int tasks, pid_t thread) {
    const UniqueFd file(::openat(tasks, fmt::format("{}/schedstat", thread).c_str(), O_RDONLY | O_CLOEXEC));
    uint64_t ns = 0;
    const std::string text = file ? text_of(file.get()) : "";
    std::from_chars(text.data(), text.data() + text.size(), ns);
    return ns;
}

}  // namespace

std::optional<unsigned> ClientCpu::now() {
    if (client_.process != 0) return of_process();
    return client_.address.empty() ? std::nullopt : incoming_cpu_of(socket_);
}

std::optional<unsigned> ClientCpu::of_process() {
    if (!looked_ && !find_process()) return std::nullopt;
    if (!tasks_) return std::nullopt;
    const Clock::time_point now = Clock::now();
    if (now >= compare_at_) choose_thread(now);
    char state[stat_size_max];
    const ssize_t size = thread_ ? ::pread(thread_.get(), state, sizeof state, 0) : 0;
    if (thread_ && size <= 0) compare_at_ = now;  // it has ended
    if (size <= 0) return std::nullopt;
    const std::optional<uint64_t> cpu = field_of_stat({state, static_cast<size_t>(size)}, field_of_cpu);
    return cpu ? std::optional(static_cast<unsigned>(*cpu)) : std::nullopt;
}

// The directory stays that of the process that was found, also when another one gets its id.
bool ClientCpu::find_process() {
    looked_ = true;
    if (client_.started == 0) return false;
    const std::string process = fmt::format("/proc/{}", client_.process);
    UniqueFd tasks(::open((process + "/task").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!tasks || started_ticks(process) != client_.started) return false;
    tasks_ = std::move(tasks);
    return true;
}

// Of those that did the work since the last comparison, in the order of their ids, the one in our place.
void ClientCpu::choose_thread(Clock::time_point now) {
    thread_.reset();
    const std::vector<pid_t> threads = threads_in(tasks_.get(), threads_max + 1);
    compare_at_ = now + std::max<Clock::duration>(comparison_time, comparison_time_per_thread * threads.size());
    if (threads.size() > threads_max) return;
    std::map<pid_t, uint64_t> run_ns;
    std::map<pid_t, uint64_t> since_ns;
    uint64_t longest_ns = 0;
    for (const pid_t thread : threads) {
        run_ns[thread] = run_time(tasks_.get(), thread);
        since_ns[thread] = run_ns[thread] - std::min(run_ns[thread], run_ns_[thread]);
        longest_ns = std::max(longest_ns, since_ns[thread]);
    }
    run_ns_ = std::move(run_ns);
    std::vector<pid_t> busy;
    for (const auto& [thread, ns] : since_ns)
        if (longest_ns > 0 && ns >= longest_ns / busy_part) busy.push_back(thread);
    if (busy.empty()) return;  // another process uses the connection
    const pid_t chosen = busy[place_ % busy.size()];
    thread_ = UniqueFd(::openat(tasks_.get(), fmt::format("{}/stat", chosen).c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace tarn::nbd
