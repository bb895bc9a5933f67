// tarn detach where no daemon answers: asks the kernel itself, and tells the tarn-keeper to let go.
#pragma once

#include <string>

#include "daemon/attachments/block_device.hpp"
#include "daemon/attachments/nbd_driver.hpp"
#include "daemon/cli/failure.hpp"

namespace tarn {

// name: of a volume that is attached here, or of its device. control: the daemon's socket. Ends within moments, and
// never waits for a request of the device.
Outcome<Json> detach_alone(NbdDriver& driver, const BlockDevices& devices, const std::string& control,
                           const std::string& name, bool force);

}  // namespace tarn
