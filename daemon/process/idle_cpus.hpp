// IdleCpus: how much of the time each CPU of the machine idled, lately.
//
// What the kernel says of all CPUs takes it long on a large machine, so all shards share one look at it. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "utils/cpu_set.hpp"
#include "utils/file_text.hpp"

namespace tarn {

class IdleCpus {
  public:
    using Clock = std::chrono::steady_clock;
    // The times that are compared. What is older than the longest says nothing.
    static constexpr std::chrono::milliseconds span_min{50};
    static constexpr std::chrono::milliseconds span_max{1000};

    IdleCpus() : IdleCpus([] { return text_of("/proc/stat"); }) {}
    // counts: gives what the kernel has in /proc/stat.
    explicit IdleCpus(std::function<std::string()> counts) : counts_(std::move(counts)) {}

    // In percent, of the one that idled most. None: of no CPUs, or nobody has looked for too long, and a
    // later call knows.
    std::optional<unsigned> most_idle(const CpuSet& cpus, Clock::time_point now);

  private:
    void look(Clock::time_point now);

    const std::function<std::string()> counts_;
    std::mutex mutex_;
    std::vector<uint64_t> ticks_;  // by CPU, since the boot; empty: not looked yet
    Clock::time_point looked_at_;
    std::vector<unsigned> percent_;  // by CPU, between the last two looks; empty: unknown
};

}  // namespace tarn
