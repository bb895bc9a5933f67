// How the devices of Attachments end: by who detaches one, takes its volume over or deletes that, or cuts it off at the
// keeper. A device of which the kernel does not let go is served on.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "daemon/attachments/attachments.hpp"
#include "utils/log.hpp"
#include "utils/on_thread.hpp"

namespace tarn {

Task<Result<>> Attachments::detach(std::string volume, bool force, Caller caller) {
    CO_TRY_VOID(may_change_devices(caller));
    if (stopping_) co_return fail(Errc::cancelled);
    const Gate::Inside inside(gate_);
    Device* const found = find(volume);
    if (!found) co_return fail(Errc::not_found, 0, "detach: no such volume is attached here");
    Device& device = *found;
    if (!force) {
        const Use use(*this, device);
        // Whoever opens it may wait for requests of it, and a thread that waits for us would keep us from ending. So
        // tarn looks that way, and this process as it can.
        if (co_await on_thread([&] { return kernel_.devices.is_used(device.about.device); }))
            co_return fail(Errc::busy, EBUSY, "detach: the device is mounted or a part of another one");
        if (device.is_ending) co_return fail(Errc::busy, EBUSY, "detach: it is being detached already");
        device.is_ending = true;
    }
    const std::string text =
        fmt::format("detached volume {} from {}", log::printable(device.about.volume), device.about.device);
    CO_TRY_VOID(co_await (force ? end_by_force(device) : end_device(device)));
    log::info("{}", text);
    co_return Result<>{};
}

Task<Result<>> Attachments::end_devices_of(VolumeId volume) {
    Result<> result;
    if (stopping_) co_return fail(Errc::cancelled);
    const Gate::Inside inside(gate_);
    Gate ending;
    const auto end = [](Attachments& self, Device& device, Result<>& all) -> Task<> {
        const Result<> ended = co_await self.end_by_force(device);
        if (!ended) all = ended;
    };
    for (const auto& device : devices_) {
        if (device->memory.header().volume_id != volume || device->is_ending) continue;
        log::warning("{} is ended", device->about.device);
        ending.spawn(end(*this, *device, result));
    }
    co_await ending.close();
    co_return result;
}

Task<> Attachments::end_clients_of(VolumeId volume) {
    // Those that stay are refused everything, also over connections that come later.
    for (const auto& device : devices_)
        if (device->memory.header().volume_id == volume) device->is_deleted = true;
    static_cast<void>(co_await end_devices_of(volume));
    co_await server_.end_clients_of(volume);
}

void Attachments::on_cut(const std::string& name) {
    if (std::erase(left_, name) > 0 && left_.empty() && !stopping_) none_is_left_();
    // One that the kernel has no more may have had this name before, and nobody has noticed yet.
    const auto device = std::ranges::find_if(devices_, [&](const auto& each) {
        return !each->is_ending && each->memory_name() == name && each->is_there();
    });
    if (device != devices_.end()) end_cut(**device);
}

void Attachments::end_cut(Device& device) {
    if (stopping_) return;
    const bool is_first = !std::exchange(device.is_cut, true);
    if (is_first) log::warning("{}: tarn-keeper has it no more: somebody has detached it", device.about.device);
    device.about.is_kept = false;
    const auto end = [](Attachments& self, Device& cut, bool says) -> Task<> {
        if (const Result<> ended = co_await self.end_by_force(cut); !ended && says)
            log::error("{}: it cannot be ended: {}; it is tried again", cut.about.device, log::describe(ended.error()));
    };
    gate_.spawn(end(*this, device, is_first));
}

Task<Result<>> Attachments::end_by_force(Device& device) {
    device.is_ending = true;  // nobody else forgets it
    // Without the kernel's driver nobody would end the requests on those sockets.
    const Result<> ended = co_await on_thread([&] { return kernel_.driver.is_there(); });
    if (!ended) {
        go_on_with(device);
        co_return ended;
    }
    device.shut_down_sockets();  // a kernel that waits to send would not hear of it
    co_return co_await end_device(device);
}

// In the kernel, and here.
Task<Result<>> Attachments::end_device(Device& device) {
    device.is_ending = true;
    // The kernel may have ended it, and the answer was lost.
    const Result<> done = co_await on_thread([&] {
        Result<> disconnected = device.disconnect();
        return !disconnected && !device.is_there() ? Result<>() : disconnected;
    });
    if (done)
        co_await forget(device);
    else
        go_on_with(device);
    co_return done;
}

// The kernel has it still: it is served, also where a connection has ended or its volume was not there meanwhile.
void Attachments::go_on_with(Device& device) {
    device.is_ending = false;
    if (stopping_) return;
    if (!device.about.is_kept) see_to_keeping(device);
    if (device.volume) on_resized(device);  // who resized it meanwhile did not tell the kernel
    if (!device.volume && !device.is_opening && !device.is_lost) {
        device.is_opening = true;
        gate_.spawn(serve_again(device));
    }
    for (unsigned i = 0; i < device.sockets.size() && device.volume; ++i)
        if (!device.is_served[i]) gate_.spawn(look_after(device, i, nbd::DeviceConnection::End::lost));
}

// It is not connected any more.
Task<> Attachments::forget(Device& device) {
    device.ends->raise();
    device.shut_down_sockets();
    const auto is_in_use = [&] {
        return std::ranges::find(device.is_served, true) != device.is_served.end() || device.user_count != 0 ||
               device.is_opening;
    };
    while (is_in_use()) co_await changed_.wait();
    volumes_.let_go(device.memory.header().volume_id);
    const std::string name = device.about.device;
    std::erase_if(devices_, [&](const auto& each) { return each.get() == &device; });
    co_await drop_from_keeper(name);  // last: that may take long
}

}  // namespace tarn
