// What has been used so far of CPU time, user and system, by all threads of a process: this one's, or another's.
#pragma once

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

namespace tarn::bench {

// In clock ticks of 10 ms. Nothing if there is no such process.
inline std::optional<double> cpu_us_of(uint64_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const size_t name_end = text.rfind(')');
    if (name_end == std::string::npos) return std::nullopt;
    std::istringstream fields(text.substr(name_end + 1));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;
    double user_ticks = 0;
    double system_ticks = 0;
    fields >> user_ticks >> system_ticks;
    return (user_ticks + system_ticks) * 1e6 / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

inline double own_cpu_us() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto us = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
    };
    return us(usage.ru_utime) + us(usage.ru_stime);
}

}  // namespace tarn::bench
