// udev, as far as a verb that has made a block device waits for it. Where udev does not run, as in a container, nobody
// makes links in /dev, and there is nothing to wait for.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace tarn {

inline constexpr std::chrono::seconds udev_patience{10};

// Returns once udev has finished with everything that happened to this device, and to no other, before the call. What
// went wrong is a warning: the device works all the same. Asking takes root.
std::optional<std::string> wait_for_udev(const std::string& device);

}  // namespace tarn
