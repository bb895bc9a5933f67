// What the service manager is told (sd_notify). Without one, nothing happens.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace tarn {

void notify_ready(const std::string& status);
void notify_status(const std::string& status);
void notify_stopping();
void notify_watchdog();
// How often it wants to hear notify_watchdog(), if it does: half of what it allows.
std::optional<std::chrono::microseconds> watchdog_interval();

}  // namespace tarn
