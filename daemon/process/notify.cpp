#include "daemon/process/notify.hpp"

#include <systemd/sd-daemon.h>

namespace tarn {

namespace {

// A status is one line; a second one would be read as another field.
std::string one_line(std::string text) {
    for (char& c : text)
        if (c == '\n') c = ' ';
    return text;
}

}  // namespace

void notify_ready(const std::string& status) {
    sd_notify(0, ("READY=1\nSTATUS=" + one_line(status)).c_str());
}

void notify_status(const std::string& status) {
    sd_notify(0, ("STATUS=" + one_line(status)).c_str());
}

void notify_stopping() {
    sd_notify(0, "STOPPING=1");
}

void notify_watchdog() {
    sd_notify(0, "WATCHDOG=1");
}

std::optional<std::chrono::microseconds> watchdog_interval() {
    uint64_t allowed_us = 0;
    if (sd_watchdog_enabled(0, &allowed_us) <= 0) return std::nullopt;
    return std::chrono::microseconds(allowed_us / 2);
}

}  // namespace tarn
