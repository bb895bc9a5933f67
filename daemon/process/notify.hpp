// Tells the service manager how the daemon fares (sd_notify). Without a service manager nothing happens.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace tarn {

void notify_ready(const std::string& status);
void notify_status(const std::string& status);
void notify_stopping();
void notify_watchdog();
// How often notify_watchdog() is due: half of the time that the service manager allows; nothing: it does not watch.
std::optional<std::chrono::microseconds> watchdog_interval();

}  // namespace tarn
