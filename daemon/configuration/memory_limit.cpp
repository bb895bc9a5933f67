#include "daemon/configuration/memory_limit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "daemon/configuration/text.hpp"

namespace tarn {

namespace {

namespace fs = std::filesystem;

// In bytes; 0: it does not say.
uint64_t meminfo(const fs::path& root, std::string_view key) {
    std::ifstream file(root / "proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        uint64_t kib = 0;
        if (words >> name >> kib && name == key) return kib << 10;
    }
    return 0;
}

std::optional<uint64_t> number_in(const fs::path& path) {
    std::ifstream file(path);
    uint64_t number = 0;
    if (file >> number) return number;  // "max" is none
    return std::nullopt;
}

// Of the group and of all above it. In a container its path may be one of the host's, of which only the end is to be
// seen: the root of what is mounted then is the container's own.
void add_groups(std::vector<MemoryLimit>& limits, const fs::path& mounted, const fs::path& group, const char* file) {
    for (fs::path at = group;; at = at.parent_path()) {
        if (const auto bytes = number_in(mounted / at.relative_path() / file))
            limits.push_back({.bytes = *bytes, .what = fmt::format("the cgroup {} allows", at.string())});
        if (at == at.parent_path()) return;
    }
}

}  // namespace

std::vector<MemoryLimit> memory_limits(const fs::path& root) {
    std::vector<MemoryLimit> limits;
    if (const uint64_t bytes = meminfo(root, "MemTotal:"); bytes != 0)
        limits.push_back({.bytes = bytes, .what = "this host has"});
    const fs::path mounted = root / "sys/fs/cgroup";
    std::ifstream groups(root / "proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {  // "4:memory,cpu:/path", of version 2 "0::/path"
        const size_t first = line.find(':');
        const size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos || line[second + 1] != '/') continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const fs::path group = line.substr(second + 1);
        if (controllers == ",,")
            add_groups(limits, fs::exists(mounted / "unified") ? mounted / "unified" : mounted, group, "memory.max");
        else if (controllers.contains(",memory,"))
            add_groups(limits, mounted / "memory", group, "memory.limit_in_bytes");
    }
    return limits;
}

std::string too_much_memory(uint64_t memory_bytes, const std::vector<MemoryLimit>& limits) {
    const auto least = std::ranges::min_element(limits, {}, &MemoryLimit::bytes);
    if (least == limits.end()) return "";
    const uint64_t kept = memory_kept_of(least->bytes);
    const uint64_t most = least->bytes > kept ? least->bytes - kept : 0;
    if (memory_bytes <= most) return "";
    return fmt::format(
        "{} is too much: {} {}, of which {} stay for the kernel and for others, a sixteenth and 64 MiB; "
        "write {}MiB or less",
        format_size_roughly(memory_bytes), least->what, format_size_roughly(least->bytes), format_size_roughly(kept),
        most >> 20);
}

uint64_t available_memory(const fs::path& root) {
    return meminfo(root, "MemAvailable:");
}

}  // namespace tarn
