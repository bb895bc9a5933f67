#include "daemon/cli/udev.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "daemon/cli/program.hpp"

namespace tarn {

// udev takes the events of a device one after the other: once it has taken one that was made now, none is left that was
// made before. udevadm settle, and --settle of udevadm wait, would wait for the events of all devices; udevadm wait
// alone for none of a device that udev knows already, and a free nbd device is one.
std::optional<std::string> wait_for_udev(const std::string& device) {
    std::error_code ignored;
    if (!std::filesystem::exists("/run/udev/control", ignored)) return std::nullopt;
    // If that takes too long it is ended, perhaps before it has made an event; this one is made.
    std::ofstream("/sys/block" + device.substr(device.rfind('/')) + "/uevent") << "change" << std::flush;
    const ProgramEnd end = run_program({"udevadm", "trigger", "--settle", "--action=change", device}, udev_patience);
    if (end.succeeded()) return std::nullopt;
    const std::string cause = end.error == ENOENT ? "udev runs, but udevadm, which waits for it, is not installed"
                              : end.error != 0 ? fmt::format("udevadm cannot be started: {}", std::strerror(end.error))
                              : end.timed_out
                                  ? fmt::format("udev did not finish with it within {} s", udev_patience.count())
                                  : fmt::format("udevadm failed: {}", end.last_line());
    return fmt::format("{} works, but its links in /dev may come later: {}; try: systemctl status systemd-udevd",
                       device, cause);
}

}  // namespace tarn
