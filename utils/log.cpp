#include "utils/log.hpp"

#include <sys/stat.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
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

// "nvme.read: a cause" has both; "nvme.read" is a place, and "what has blanks" a cause.
struct Parts {
    std::string_view place;
    std::string_view cause;
};
Parts parts_of(std::string_view where) {
    const size_t end = where.find(": ");
    if (end != std::string_view::npos && where.substr(0, end).find(' ') == std::string_view::npos)
        return {.place = where.substr(0, end), .cause = where.substr(end + 2)};
    if (where.contains(' ')) return {.place = {}, .cause = where};
    return {.place = where, .cause = {}};
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
    return fail(Errc::invalid, 0, "not error, warning, info or debug");
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
    const auto [place, cause] = parts_of(error.where);
    std::string text;
    if (place.empty() && !cause.empty())
        text = cause;
    else
        text = fmt::format("{}{}{}", to_string(error.code), *error.where ? " at " : "", error.where);
    if (error.sys_errno) text += fmt::format(": {}", std::strerror(error.sys_errno));
    return text;
}

std::string explain(const Error& error) {
    const auto [place, cause] = parts_of(error.where);
    // Of the others the number is for clients that know nothing but numbers.
    const bool is_of_kernel =
        error.sys_errno != 0 && (error.code == Errc::io || error.code == Errc::no_space || error.code == Errc::refused);
    const char* const kernels = is_of_kernel ? std::strerror(error.sys_errno) : "";
    if (cause.empty()) return error.sys_errno != 0 ? std::strerror(error.sys_errno) : to_string(error.code);
    return fmt::format("{}{}{}", cause, is_of_kernel && error.sys_errno != EIO ? ": " : "",
                       error.sys_errno != EIO ? kernels : "");
}

}  // namespace tarn::log
