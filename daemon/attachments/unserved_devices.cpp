#include "daemon/attachments/unserved_devices.hpp"

#include <algorithm>

#include "utils/log.hpp"

namespace tarn {

void warn_of_unserved_devices(const BlockDevices& devices, const std::vector<Attachment>& served) {
    for (const auto& [device, volume] : devices.all_of_tarn())
        if (std::ranges::find(served, device, &Attachment::device) == served.end())
            log::warning(
                "/dev/{} is a block device of volume {} that this tarnd does not serve; if no other one does, its "
                "requests wait in vain, and tarn detach --force ends it",
                device, log::printable(volume));
}

}  // namespace tarn
