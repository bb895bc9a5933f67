#include "daemon/attachments/attached_device.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "utils/log.hpp"

namespace tarn {

using nbd::DeviceMemory;

namespace {

constexpr unsigned devices_max = 1024;
constexpr int tries_max = 8;  // each leaves the kernel threads for the next one

struct SocketPair {
    UniqueFd ours;
    UniqueFd kernels;

    static Result<SocketPair> make() {
        std::array<int, 2> ends{};
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
            return fail(Errc::io, errno, "attach: socketpair");
        return SocketPair{.ours = UniqueFd(ends[0]), .kernels = UniqueFd(ends[1])};
    }
};

}  // namespace

AttachedDevice::AttachedDevice(const NbdKernel& of, Attachment attachment, DeviceMemory device_memory)
    : kernel(of),
      about(std::move(attachment)),
      memory(std::move(device_memory)),
      sockets(about.connections),
      is_served(about.connections),
      is_looked_after(about.connections) {}

bool AttachedDevice::is_memory(const std::string& name) {
    const std::optional<unsigned> index = index_of(name);
    return index && name == fmt::format("nbd{}", *index);
}

Result<std::optional<AttachedDevice>> AttachedDevice::adopt(const NbdKernel& kernel, std::vector<Keeper::Kept>& kept,
                                                            size_t memory) {
    const std::string name = kept[memory].name;
    Result<DeviceMemory> adopted = DeviceMemory::adopt(std::move(kept[memory].fd));
    if (adopted && adopted->header().index != *index_of(name))
        adopted = fail(Errc::invalid, 0, "device memory: of a device of another number");
    if (!adopted && kernel.devices.is_of_tarn(name)) return fail(adopted.error());
    if (!adopted) return std::optional<AttachedDevice>();
    const nbd::DeviceHeader& header = adopted->header();
    AttachedDevice device(kernel,
                          {.volume = std::string(header.volume_name()),
                           .device = name,
                           .index = *index_of(name),
                           .read_only = header.read_only,
                           .size_bytes = header.size_bytes,
                           .connections = header.connections},
                          std::move(*adopted));
    if (!device.is_there()) return std::optional<AttachedDevice>();
    device.about.is_kept = true;
    for (size_t i = 0; i < device.sockets.size(); ++i)
        if (const auto socket = std::ranges::find(kept, device.socket_name(i), &Keeper::Kept::name);
            socket != kept.end())
            device.sockets[i] = std::move(socket->fd);
    return std::optional(std::move(device));
}

// Another tarnd of this machine may have a volume of that name, too, and a number is used anew.
bool AttachedDevice::is_there() const {
    return !kernel.devices.is_gone(about.device, about.volume, memory.header().connected_by);
}

bool AttachedDevice::has_size(uint64_t size_bytes) const {
    return about.size_bytes == size_bytes &&
           kernel.devices.size_bytes_of(about.device).value_or(size_bytes) == size_bytes;
}

nbd::Export AttachedDevice::exported() const {
    nbd::Export exported{};
    exported.size_bytes = about.size_bytes;
    exported.read_only = about.read_only;
    return exported;
}

// Reads nothing that changes: the loop may meanwhile be told another size.
NbdDriver::Device AttachedDevice::as_told(uint64_t size_bytes) const {
    nbd::Export exported{};
    exported.read_only = about.read_only;
    return {.size_bytes = size_bytes,
            .block_size_bytes = memory.header().block_size_bytes,
            .flags = nbd::transmission_flags(exported),
            .request_timeout = request_timeout,
            .reconnect_timeout = reconnect_timeout,
            .backend = backend_of(about.volume)};
}

std::string AttachedDevice::socket_name(size_t connection) const {
    return fmt::format("{}.{}", about.device, connection);
}

// Without a size at first: nobody uses it then, and it may be made anew.
Result<> AttachedDevice::connect(const Keeper& keeper, uint64_t size_bytes) {
    TRY_VOID(kernel.driver.is_there());
    for (int tries = 1;; ++tries) {
        TRY_VOID(connect_once(keeper));
        if (about.connections == 1 || !kernel.devices.reads_one_connection_only(about.device)) break;
        TRY_VOID(undo(keeper));
        if (tries == tries_max)
            return fail(Errc::busy, EAGAIN,
                        "attach: the kernel makes no thread for each connection; tarn attach --connections 1");
    }
    note_cpus();
    if (const Result<> told = tell_size(size_bytes); !told) {
        static_cast<void>(undo(keeper));
        return told;
    }
    about.size_bytes = memory.header().size_bytes = size_bytes;
    return {};
}

// What the kernel does not let go of is nobody's: the next process must not go on with it either.
Result<> AttachedDevice::undo(const Keeper& keeper) const {
    Result<> undone = kernel.driver.disconnect(about.index);
    if (!undone && undone.error().code == Errc::not_found) undone = {};  // it is gone already
    if (!undone)
        log::error("{0}: the kernel made it in vain, and does not let go of it: {1}; tarn detach --force {0} ends it",
                   about.device, log::describe(undone.error()));
    keeper.drop(memory_name());
    return undone;
}

Result<> AttachedDevice::connect_once(const Keeper& keeper) {
    std::vector<UniqueFd> kernels;
    std::vector<int> numbers;
    for (UniqueFd& ours : sockets) {
        TRY(SocketPair pair, SocketPair::make());
        ours = std::move(pair.ours);
        numbers.push_back(pair.kernels.get());
        kernels.push_back(std::move(pair.kernels));
    }
    for (unsigned index = 0; index < devices_max; ++index) {
        if (kernel.devices.is_connected(fmt::format("nbd{}", index))) continue;
        const Result<> connected = connect_as(index, keeper, numbers);
        if (connected || connected.error().code != Errc::busy) return connected;
    }
    return fail(Errc::no_space, 0, "nbd: no device is free");
}

Result<> AttachedDevice::connect_as(unsigned index, const Keeper& keeper, std::span<const int> kernels) {
    about.index = memory.header().index = index;
    about.device = fmt::format("nbd{}", index);
    keeper.drop(memory_name());  // of a device that had this name before
    about.is_kept = keep(keeper, sockets).has_value();
    const Result<> connected = kernel.driver.connect(index, as_told(0), kernels);
    const bool is_ours = kernel.devices.is_device_of(about.device, about.volume);
    if (!connected || !is_ours) {
        // The kernel may have made it, and the answer was lost.
        if (connected || (is_ours && connected.error().code != Errc::busy))
            static_cast<void>(undo(keeper));
        else
            keeper.drop(memory_name());  // also what it has of a half
        if (connected)
            return fail(Errc::unsupported, 0,
                        "attach: the kernel does not say whose device it has made, as Linux 5.14 and newer do");
        return connected;
    }
    memory.header().connected_by = kernel.devices.connected_by(about.device).value_or(0);
    return {};
}

unsigned AttachedDevice::cpu_of(unsigned connection) const {
    const uint32_t noted = memory.header().cpus[connection];
    return noted == 0 ? connection : noted - 1;
}

// Before the device has a size. While a setting of the queues is changed, as udev does with a new device, the kernel
// says nothing of them before all requests are answered; there are none yet. A thread that waited for them would keep
// this process from ending when it is killed, and the next one, which is to answer them, from beginning.
void AttachedDevice::note_cpus() const {
    for (unsigned i = 0; i < about.connections; ++i)
        if (const auto cpu = kernel.devices.cpu_of_queue(about.device, i)) memory.header().cpus[i] = *cpu + 1;
}

Result<> AttachedDevice::keep(const Keeper& keeper, std::span<const UniqueFd> ours) const {
    for (size_t i = 0; i < ours.size(); ++i) TRY_VOID(keeper.keep(socket_name(i), ours[i].get()));
    return keeper.keep(memory_name(), memory.fd());  // last: with it, all is there
}

// What was in flight on the old one the kernel asks for again, once its timeout has passed.
Result<std::optional<UniqueFd>> AttachedDevice::replace_socket(const Keeper& keeper, bool has_keeper,
                                                               unsigned connection) const {
    if (has_keeper) {
        TRY(const bool has, keeper.has(memory_name()));
        if (!has) return std::optional<UniqueFd>();
    }
    TRY(SocketPair pair, SocketPair::make());
    if (has_keeper) TRY_VOID(keeper.keep(socket_name(connection), pair.ours.get()));
    const std::array kernels{pair.kernels.get()};
    TRY_VOID(kernel.driver.reconfigure(about.index, as_told(0), kernels));  // with sockets it is told no size
    // It says so too if no socket of its is dead, and then has not taken this one.
    pair.kernels = {};
    pollfd ours{.fd = pair.ours.get(), .events = 0, .revents = 0};
    if (::poll(&ours, 1, 0) > 0) return fail(Errc::unavailable, EAGAIN, "attach: the kernel has not given it up yet");
    return std::optional(std::move(pair.ours));
}

Result<> AttachedDevice::tell_size(uint64_t size_bytes) const {
    TRY_VOID(kernel.driver.reconfigure(about.index, as_told(size_bytes), {}));
    if (kernel.devices.size_bytes_of(about.device).value_or(size_bytes) != size_bytes)
        return fail(Errc::io, 0, "attach: the kernel has not taken over the size");
    return {};
}

Result<> AttachedDevice::disconnect() const {
    if (!is_there()) return {};  // another one may have its number by now
    const Result<> done = kernel.driver.disconnect(about.index);
    if (!done && done.error().code == Errc::not_found) return {};  // it was not connected any more
    return done;
}

Result<std::vector<UniqueFd>> AttachedDevice::copies_of_sockets() const {
    std::vector<UniqueFd> copies;
    for (const UniqueFd& socket : sockets) {
        copies.emplace_back(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
        if (!copies.back()) return fail(Errc::io, errno, "attach: dup");
    }
    return copies;
}

void AttachedDevice::shut_down_sockets() const {
    for (const UniqueFd& socket : sockets) ::shutdown(socket.get(), SHUT_RDWR);
}

}  // namespace tarn
