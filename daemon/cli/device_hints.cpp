#include "daemon/cli/device_hints.hpp"

#include <fmt/format.h>

#include <thread>

#include "daemon/cli/device_claim.hpp"
#include "utils/printable.hpp"

namespace tarn {

namespace {
constexpr std::chrono::seconds claim_patience{2};
constexpr std::chrono::milliseconds between_looks{100};
}  // namespace

std::string hint_about_device_of(const BlockDevices& devices, const std::string& volume) {
    const std::optional<std::string> device = devices.device_of_volume(volume);
    if (!device) return {};
    const std::string point = devices.mount_point_of(*device);
    return point.empty() ? "tarn detach --force " + printable(volume) + ", if nobody serves it"
                         : fmt::format("umount {}, which has /dev/{} still", printable(point), *device);
}

std::optional<Failure> use_of(const BlockDevices& devices, const std::string& device,
                              std::chrono::milliseconds opener_patience) {
    constexpr const char* by_force = "; --force ends it all the same, and its requests fail";
    std::string opener = devices.opened_by(device);
    for (const auto end = std::chrono::steady_clock::now() + opener_patience;
         !opener.empty() && std::chrono::steady_clock::now() < end; opener = devices.opened_by(device))
        std::this_thread::sleep_for(between_looks);
    if (!opener.empty())
        return Failure{.exit = Exit::busy,
                       .cause = fmt::format("/dev/{} is open in {}", device, printable(opener)),
                       .hint = fmt::format("end that{}", by_force)};
    if (const std::string point = devices.mount_point_of(device); !point.empty())
        return Failure{.exit = Exit::busy,
                       .cause = fmt::format("/dev/{} is mounted on {}", device, printable(point)),
                       .hint = fmt::format("umount {}{}", printable(point), by_force)};
    if (!is_claimed("/dev/" + device, claim_patience)) return std::nullopt;
    return Failure{.exit = Exit::busy,
                   .cause = fmt::format("/dev/{} is mounted elsewhere, a part of another device, swapped to, or open "
                                        "for one program alone",
                                        device),
                   .hint = fmt::format("lsblk /dev/{}{}", device, by_force)};
}

}  // namespace tarn
