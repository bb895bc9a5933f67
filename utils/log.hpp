// Structured logs with levels: to journald when the service manager connected us to it, else lines on stderr.
//
// Layers below daemon/ return errors; when they log all the same, CONTRIBUTING.md says. Bytes that a client or a peer
// chose are escaped before they get here (printable.hpp).
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "utils/printable.hpp"
#include "utils/result.hpp"

namespace tarn::log {

enum class Level : uint8_t { error = 3, warning = 4, info = 6, debug = 7 };  // syslog's numbers

void set_level(Level level) noexcept;
bool enabled(Level level) noexcept;
Result<Level> parse_level(std::string_view name);

void write(Level level, std::string_view message) noexcept;

template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
    write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
    if (enabled(Level::warning)) write(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
    if (enabled(Level::info)) write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
    if (enabled(Level::debug)) write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}

// For the log: "input/output error at nvme.read: No space left on device".
std::string describe(const Error& error);
// For the user, without our names for modules and kinds of errors: "No space left on device".
std::string explain(const Error& error);
using tarn::printable;

}  // namespace tarn::log
