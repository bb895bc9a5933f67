// How tarn-keeper comes to have the devices of Attachments, and to have them no more. It may hang: threads talk to it
// of devices. A number is used anew, and then means another device: who makes a device, tells of all of one or that one
// is gone has the semaphore connecting_ meanwhile. Who replaces a connection does not: what it tells is of that alone.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "daemon/attachments/attachments.hpp"
#include "utils/log.hpp"
#include "utils/on_thread.hpp"

namespace tarn {

namespace {
constexpr std::chrono::seconds keep_again_after{1};
constexpr int tries_without_keeper = 3;  // one may just be ending as it is asked
}  // namespace

void Attachments::see_to_keeping(Device& device) {
    device.about.is_kept = false;
    if (!device.is_ending && !std::exchange(device.is_being_kept, true)) gate_.spawn(keep(device));
}

// A keeper that has ended since it had the device may not have been watched yet; the one that follows knows nothing.
Task<> Attachments::see_whether_kept(Device& device) {
    const Use use(*this, device);
    const bool is_kept = device.about.is_kept && co_await on_thread([&] {
                             // One that does not answer in time has what it had; should it end, who watches it hears of
                             // that.
                             const Result<bool> has = keeper_.has(device.memory_name());
                             return has ? *has : has.error().code != Errc::not_found;
                         });
    if (!is_kept) see_to_keeping(device);
}

// Until the keeper has it, or there is none.
Task<> Attachments::keep(Device& device) {
    const Use use(*this, device);
    bool has_said = false;
    for (int tries = 0; !device.about.is_kept && !device.is_ending && !device.is_cut && !stopping_;) {
        const Result<> kept = co_await tell_keeper(device);
        if (kept) continue;
        if (kept.error().sys_errno == ENODEV) break;  // its connections notice
        if (!std::exchange(has_said, true))
            log::warning(
                "{}: tarn-keeper does not have it ({}); should this process be killed now, its requests wait for tarn "
                "detach --force",
                device.about.device, log::describe(kept.error()));
        if (kept.error().code == Errc::not_found && ++tries == tries_without_keeper) break;
        co_await loop_.sleep(keep_again_after);
    }
    device.is_being_kept = false;
    if (!device.about.is_kept) co_return;
    log::info("{}: tarn-keeper has it now", device.about.device);
    keeper_watch_.begin();  // it may have begun with this
}

// If a connection gets another socket meanwhile, or the keeper a successor, the device does not count as kept.
Task<Result<>> Attachments::tell_keeper(Device& device) {
    co_await connecting_.acquire();
    Result<> told;
    const std::pair before(device.replaced_count, lost_keepers_);
    if (!device.is_ending && !stopping_) {
        const auto sockets = device.copies_of_sockets();
        told = co_await on_thread([&]() -> Result<> {
            if (!sockets) return fail(sockets.error());
            // Else its name may be that of a newer one.
            if (!device.is_there()) return fail(Errc::unavailable, ENODEV, "attach: the kernel does not have it");
            return device.keep(keeper_, *sockets);
        });
        ++device.told_count;
        device.about.is_kept = told && !device.is_cut && std::pair(device.replaced_count, lost_keepers_) == before;
    }
    connecting_.release();
    co_return told;
}

// Of a device that is gone, unless a newer one has its name by now.
Task<> Attachments::drop_from_keeper(std::string name) {
    co_await connecting_.acquire();
    if (std::ranges::none_of(devices_, [&](const auto& each) { return each->about.device == name; }))
        co_await on_thread([&] {
            keeper_.drop(name);
            return true;
        });
    connecting_.release();
}

// The keeper has ended: because it was killed, or because it has nothing to keep any more.
Task<Result<>> Attachments::on_keeper_lost(std::function<Result<>()> keep_memory) {
    ++lost_keepers_;
    for (const auto& device : devices_)
        if (std::exchange(device->about.is_kept, false))
            log::warning("{}: tarn-keeper has ended, or was not watched; it is told anew", device->about.device);
    const Result<> kept = co_await on_thread(keep_memory);
    for (const auto& device : devices_) see_to_keeping(*device);
    co_return kept;
}

}  // namespace tarn
