#include "daemon/attachments/waiting_requests.hpp"

#include <chrono>
#include <cstdint>
#include <vector>

#include "utils/log.hpp"

namespace tarn {

namespace {

constexpr int looks_of_a_moment = 50;
constexpr std::chrono::milliseconds between_looks{20};

// parsed: see DeviceMemory. Requests of a connection that broke are in no log, but in the kernel's count: a device that
// had such a connection gets its size when it has no request at all.
bool has_answered(const AttachedDevice& device, const std::vector<uint64_t>& parsed) {
    uint8_t& has_lost_requests = device.memory.header().has_lost_requests;
    if (has_lost_requests != 0 && device.kernel.devices.is_busy(device.about.device)) return false;
    has_lost_requests = 0;
    return device.memory.has_answered(parsed);
}

}  // namespace

Task<> none_waits(const AttachedDevice& device, Loop& loop, std::function<bool()> goes_on) {
    for (bool is_first = true; goes_on(); is_first = false) {
        const std::vector<uint64_t> parsed = device.memory.parsed();
        int looks = 0;
        for (; !has_answered(device, parsed) && goes_on(); ++looks) {
            if (is_first && looks == looks_of_a_moment)
                log::warning("{}: it gets the new size of its volume {} once its requests that wait are answered",
                             device.about.device, log::printable(device.about.volume));
            co_await loop.sleep(between_looks);
        }
        if (looks <= looks_of_a_moment) break;
    }
}

}  // namespace tarn
