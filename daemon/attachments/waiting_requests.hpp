// none_waits(): what comes before a device gets another size.
//
// Linux 6.9 and newer let no request in, and wait until all are answered, to take over a size. If one of them waited
// for a host that is away, so would the thread that tells the size: this process could not end, even killed, and the
// next one, which is to answer it, not begin.
#pragma once

#include <functional>

#include "daemon/attachments/attached_device.hpp"
#include "utils/loop.hpp"
#include "utils/task.hpp"

namespace tarn {

// Returns when no request of the device is older than a moment, or it no longer goes on, which is looked at time and
// again. The device outlives it. On the loop of the device's Attachments.
Task<> none_waits(const AttachedDevice& device, Loop& loop, std::function<bool()> goes_on);

}  // namespace tarn
