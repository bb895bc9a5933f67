// How tarn-keeper comes to have the devices of Attachments, and to have them no more. It may hang: only threads wait
// for it. A number is used anew, and then means another device, so one at a time makes a device or tells the keeper of
// one.
#include <algorithm>

#include "daemon/attachments/attachments.hpp"
#include "utils/log.hpp"
#include "utils/on_thread.hpp"

namespace tarn {

namespace {
constexpr std::chrono::seconds keep_again_after{1};
}

void Attachments::see_to_keeping(Device& device) {
    if (!std::exchange(device.is_being_kept, true)) gate_.spawn(keep(device));
}

// Until the keeper has it.
Task<> Attachments::keep(Device& device) {
    const Use use(*this, device);
    device.about.is_kept = false;
    while (!device.about.is_kept && !device.is_ending && !stopping_) {
        const Result<> kept = co_await keep_once(device);
        if (!kept && kept.error().code == Errc::not_found) break;  // there is no tarn-keeper
        if (!kept) co_await loop_.sleep(keep_again_after);
    }
    if (device.about.is_kept) log::info("{}: tarn-keeper has it now", device.about.device);
    device.is_being_kept = false;
}

// A connection may meanwhile get another socket, or the keeper a successor: then that has to be told once more.
Task<Result<>> Attachments::keep_once(Device& device) {
    co_await connecting_.acquire();
    Result<> kept;
    const std::pair before(device.replaced_count, lost_keepers_);
    if (!device.is_ending && !stopping_) {
        const auto sockets = device.copies_of_sockets();
        kept = co_await on_thread([&] { return sockets ? device.keep(keeper_, *sockets) : fail(sockets.error()); });
        device.about.is_kept = kept && std::pair(device.replaced_count, lost_keepers_) == before;
    }
    connecting_.release();
    co_return kept;
}

// Unless a newer device has its name by now.
Task<> Attachments::drop_from_keeper(const Device& device) {
    co_await connecting_.acquire();
    const std::string name = device.about.device;
    const bool is_its = std::ranges::none_of(
        devices_, [&](const auto& each) { return each.get() != &device && each->about.device == name; });
    if (is_its)
        co_await on_thread([&] {
            keeper_.drop(name);
            return true;
        });
    connecting_.release();
}

// The keeper has ended: because it was killed, or because it has nothing to keep any more.
Result<> Attachments::keep_again(const std::function<Result<>()>& keep_memory) {
    ++lost_keepers_;
    for (const auto& device : devices_)
        if (!device->is_ending) see_to_keeping(*device);
    return keep_memory();
}

}  // namespace tarn
