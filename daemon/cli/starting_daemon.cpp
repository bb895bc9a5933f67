#include "daemon/cli/starting_daemon.hpp"

#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "utils/file_text.hpp"

namespace tarn {

namespace {

constexpr double young_s = 60;

double uptime_s() {
    double seconds = 0;
    std::ifstream("/proc/uptime") >> seconds;
    return seconds;
}

// The 22nd field of stat, in ticks since the machine started; the second, the name, may have blanks.
std::optional<double> started_s(const std::filesystem::path& process) {
    constexpr int fields_between = 19;
    const std::string stat = text_of(process / "stat");
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) return std::nullopt;
    std::istringstream fields(stat.substr(name_end + 1));
    std::string skipped;
    for (int i = 0; i < fields_between; ++i) fields >> skipped;
    double ticks = 0;
    if (!(fields >> ticks)) return std::nullopt;
    return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// --control PATH or --control=PATH, which wins over the configuration.
bool listens_elsewhere(const std::filesystem::path& process, const std::string& control) {
    const std::string command_line = text_of(process / "cmdline");
    std::string_view rest = command_line;
    bool is_next = false;
    while (!rest.empty()) {
        const std::string_view word = rest.substr(0, rest.find('\0'));
        rest.remove_prefix(std::min(word.size() + 1, rest.size()));
        if (is_next) return word != control;
        if (word.starts_with("--control=")) return word.substr(10) != control;
        is_next = word == "--control";
    }
    return false;
}

}  // namespace

bool is_daemon_starting(const std::string& control) {
    const double now_s = uptime_s();
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
        const std::string name = entry.path().filename();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        if (text_of(entry.path() / "comm") != "tarnd\n") continue;
        const auto started = started_s(entry.path());
        if (started && now_s - *started < young_s && !listens_elsewhere(entry.path(), control)) return true;
    }
    return false;
}

}  // namespace tarn
