#include "utils/log.hpp"

#include <sys/stat.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "utils/clock.hpp"

namespace tarn::log {

namespace {

std::atomic<Level> current_level{Level::info};

// journald tells its clients by this variable which stream is its own.
bool stderr_is_journal() {
    const char* const stream = std::getenv("JOURNAL_STREAM");
    struct stat status{};
    if (!stream || ::fstat(STDERR_FILENO, &status) != 0) return false;
    return fmt::format("{}:{}", status.st_dev, status.st_ino) == stream;
}

const char* name(Level level) {
    switch (level) {
        case Level::error: return "error";
        case Level::warning: return "warning";
        case Level::info: return "info";
        case Level::debug: return "debug";
    }
    return "?";
}

}  // namespace

void set_level(Level level) noexcept {
    current_level.store(level, std::memory_order_relaxed);
}

bool enabled(Level level) noexcept {
    return level <= current_level.load(std::memory_order_relaxed);
}

Result<Level> parse_level(std::string_view text) {
    for (const Level level : {Level::error, Level::warning, Level::info, Level::debug})
        if (text == name(level)) return level;
    return fail(Errc::invalid, 0, "log.level");
}

void write(Level level, std::string_view message) noexcept {
    static const bool journal = stderr_is_journal();
    if (journal) {
        sd_journal_send("MESSAGE=%.*s", static_cast<int>(message.size()), message.data(), "PRIORITY=%i",
                        static_cast<int>(level), nullptr);
        return;
    }
    const int64_t now_ns = realtime_ns();
    const time_t seconds = now_ns / 1'000'000'000;
    tm utc{};
    ::gmtime_r(&seconds, &utc);
    char line[1024];
    const auto end = fmt::format_to_n(line, sizeof line - 1, "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z {} {}",
                                      utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                                      utc.tm_sec, now_ns / 1'000'000 % 1000, name(level), message);
    *end.out = '\n';
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, static_cast<size_t>(end.out - line) + 1);
}

std::string describe(const Error& error) {
    std::string text = to_string(error.code);
    if (*error.where) text += fmt::format(" at {}", error.where);
    if (error.sys_errno) text += fmt::format(": {}", std::strerror(error.sys_errno));
    return text;
}

}  // namespace tarn::log
