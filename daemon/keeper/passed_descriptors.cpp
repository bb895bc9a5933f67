#include "daemon/keeper/passed_descriptors.hpp"

#include <systemd/sd-daemon.h>

#include <cstdlib>

namespace tarn {

Result<PassedDescriptors> PassedDescriptors::receive() {
    char** names = nullptr;
    const int count = ::sd_listen_fds_with_names(1, &names);
    if (count < 0) return fail(Errc::io, -count, "sd_listen_fds_with_names");
    PassedDescriptors descriptors;
    for (int i = 0; i < count; ++i) {
        descriptors.passed_.push_back({.name = names[i], .fd = UniqueFd(SD_LISTEN_FDS_START + i)});
        std::free(names[i]);
    }
    std::free(static_cast<void*>(names));
    return descriptors;
}

std::vector<UniqueFd> PassedDescriptors::take(std::string_view name) {
    std::vector<UniqueFd> taken;
    for (Passed& each : passed_)
        if (each.name == name && each.fd) taken.push_back(std::move(each.fd));
    return taken;
}

}  // namespace tarn
