// What the log says at the start of the kernel's devices that are volumes, and which this process does not serve: as
// after the end of tarnd and its keeper at once. Nobody else says a word of them, and who uses them waits.
#pragma once

#include <vector>

#include "daemon/attachments/block_device.hpp"
#include "daemon/control/control.hpp"

namespace tarn {

// served: those of this process. One warning for each of the others.
void warn_of_unserved_devices(const BlockDevices& devices, const std::vector<Attachment>& served);

}  // namespace tarn
