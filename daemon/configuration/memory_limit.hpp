// The largest `memory` that this machine allows. The host's memory and the limits of our cgroup, and of all above it,
// bound it, less a reserve for the kernel and for others. A process that takes more is killed without a message, at the
// start or days later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tarn {

struct MemoryLimit {
    uint64_t bytes = 0;
    std::string what;  // "this host has", "the cgroup /system.slice allows"
};

// All limits of this process; cgroups of version 1 and 2. root: where /proc and /sys are.
std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root = "/");

// The reserve that must stay free below a limit: a sixteenth of it, and 64 MiB.
inline uint64_t memory_kept_of(uint64_t limit_bytes) {
    return limit_bytes / 16 + (uint64_t{64} << 20);
}

// Why that is too much memory, with the arithmetic; empty: it is not.
std::string too_much_memory(uint64_t memory_bytes, const std::vector<MemoryLimit>& limits);

// The memory that programs can take now without others being swapped out or killed; 0: unknown.
uint64_t available_memory(const std::filesystem::path& root = "/");

}  // namespace tarn
