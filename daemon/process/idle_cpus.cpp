#include "daemon/process/idle_cpus.hpp"

#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace tarn {

namespace {

// The time that each CPU has idled, in the kernel's ticks, by its number.
std::vector<uint64_t> idle_ticks(const std::string& counts) {
    std::vector<uint64_t> ticks;
    std::istringstream lines(counts);
    for (std::string line; std::getline(lines, line) && line.starts_with("cpu");) {
        if (line[3] == ' ') continue;  // all together
        std::istringstream fields(line.substr(3));
        size_t cpu = 0;
        uint64_t user = 0;
        uint64_t nice = 0;
        uint64_t system = 0;
        uint64_t idle = 0;
        uint64_t waiting = 0;  // idle as well: a loop that waits counts as if it waited for a device
        if (!(fields >> cpu >> user >> nice >> system >> idle >> waiting)) continue;
        if (ticks.size() <= cpu) ticks.resize(cpu + 1);
        ticks[cpu] = idle + waiting;
    }
    return ticks;
}

}  // namespace

std::optional<unsigned> IdleCpus::most_idle(const CpuSet& cpus, Clock::time_point now) {
    const std::lock_guard guard(mutex_);
    if (now - looked_at_ >= span_min) look(now);
    if (percent_.empty() || cpus.empty()) return std::nullopt;
    unsigned most = 0;
    for (const unsigned cpu : cpus.list())
        if (cpu < percent_.size()) most = std::max(most, percent_[cpu]);
    return most;
}

void IdleCpus::look(Clock::time_point now) {
    const auto passed = now - std::exchange(looked_at_, now);
    const std::vector<uint64_t> before = std::exchange(ticks_, idle_ticks(counts_()));
    percent_.clear();
    if (before.empty() || passed > span_max) return;
    const double span_ticks =
        std::chrono::duration<double>(passed).count() * static_cast<double>(::sysconf(_SC_CLK_TCK));
    for (size_t cpu = 0; cpu < ticks_.size(); ++cpu) {
        const uint64_t idle = cpu < before.size() ? ticks_[cpu] - std::min(before[cpu], ticks_[cpu]) : 0;
        percent_.push_back(static_cast<unsigned>(std::min(100.0, static_cast<double>(idle) * 100 / span_ticks)));
    }
}

}  // namespace tarn
