// Why a device of this machine is in the way of what was asked, and what to do about it: for attach, which would make
// another one of the volume, and for detach, which would end it.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "daemon/attachments/block_device.hpp"
#include "daemon/cli/failure.hpp"

namespace tarn {

// What ends the device that is this volume already, and that its daemon does not know. Empty: there is none.
std::string hint_about_device_of(const BlockDevices& devices, const std::string& volume);

// Why the device is not to be ended now. None: nothing has it. opener_patience: for how long who has it open may still
// close it.
std::optional<Failure> use_of(const BlockDevices& devices, const std::string& device,
                              std::chrono::milliseconds opener_patience);

}  // namespace tarn
