#include "daemon/attachments/attachments.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "daemon/attachments/waiting_requests.hpp"
#include "utils/log.hpp"
#include "utils/on_thread.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

using nbd::DeviceMemory;

namespace {

constexpr uint64_t size_max = uint64_t{1} << 62;
constexpr std::chrono::milliseconds retry_after{250};

}  // namespace

Attachments::Attachments(Volumes& volumes, nbd::Server& server, NbdKernel kernel, Keeper& keeper, Loop& loop,
                         size_t shard_count, std::function<Result<>()> keep_memory_again)
    : volumes_(volumes),
      server_(server),
      kernel_(std::move(kernel)),
      keeper_(keeper),
      loop_(loop),
      shard_count_(shard_count),
      keeper_watch_(keeper, loop,
                    {.cut = [this](const std::string& name) { on_cut(name); },
                     .lost = [this, keep_memory_again] { return on_keeper_lost(keep_memory_again); }}) {}
Attachments::~Attachments() = default;

Result<> Attachments::may_change_devices(const Caller& caller) {
    if (caller.user == 0 || caller.user == ::geteuid()) return {};
    return fail(Errc::refused, EPERM, "attach: only root makes and ends block devices");
}

// A volume may be called as a device is. One that is ending may have its name from before.
Attachments::Device* Attachments::find(const std::string& volume_or_device) {
    for (const auto name : {&Attachment::volume, &Attachment::device})
        for (const auto& device : devices_)
            if (!device->is_ending && device->about.*name == volume_or_device) return device.get();
    return nullptr;
}

bool Attachments::has(const std::string& volume) const {
    return std::ranges::any_of(devices_, [&](const auto& each) { return each->about.volume == volume; });
}

std::vector<Attachment> Attachments::list() const {
    std::vector<Attachment> all;
    for (const auto& device : devices_)
        if (!device->is_ending) all.push_back(device->about);
    return all;
}

Task<Result<Attachment>> Attachments::attach(AttachOptions options, Caller caller) {
    CO_TRY_VOID(may_change_devices(caller));
    if (stopping_) co_return fail(Errc::cancelled);
    const Gate::Inside inside(gate_);
    if (has(options.volume) || std::ranges::find(under_way_, options.volume) != under_way_.end())
        co_return fail(Errc::busy, EBUSY, "attach: the volume is attached here already");
    under_way_.push_back(options.volume);
    const Result<Attachment> attached = co_await open_and_make_device(options);
    std::erase(under_way_, options.volume);
    if (attached) log::info("attached volume {} as {}", log::printable(options.volume), attached->device);
    co_return attached;
}

Task<Result<Attachment>> Attachments::open_and_make_device(const AttachOptions& options) {
    const unsigned count = options.connections != 0
                               ? options.connections
                               : std::min(static_cast<unsigned>(shard_count_), AttachOptions::connections_max);
    CO_TRY(DeviceMemory memory,
           DeviceMemory::create(
               {.connections = count, .block_size_bytes = options.block_size_bytes, .read_only = options.read_only},
               options.volume));
    // Of another tarnd, or of one that is gone and did not leave it to us: both would have one link.
    if (const std::optional<std::string> there = kernel_.devices.device_of_volume(options.volume))
        co_return fail(Errc::busy, EBUSY,
                       "attach: a block device of this machine is a volume of that name, and not this tarnd's; "
                       "tarn detach --force ends one that nobody serves");
    if (options.take_over) {
        // Nothing is taken from anybody in vain.
        CO_TRY_VOID(co_await on_thread([&] { return kernel_.driver.is_there(); }));
        CO_TRY_VOID(co_await volumes_.take_over(options.volume));
    }
    CO_TRY(std::shared_ptr<Volume> volume, co_await open(memory, false));
    if (stopping_) co_return fail(Errc::cancelled);
    co_return co_await make_device(options, std::move(memory), std::move(volume));
}

// Also for a read-only device: what is read, as by a file system, must not change under it.
Task<Result<std::shared_ptr<Volume>>> Attachments::open(const DeviceMemory& memory, bool is_resumed) {
    return volumes_.open_recorded(std::string(memory.header().volume_name()), Access::write, memory.session(),
                                  is_resumed);
}

Task<Result<Attachment>> Attachments::make_device(const AttachOptions& options, DeviceMemory memory,
                                                  std::shared_ptr<Volume> volume) {
    CO_TRY(const uint64_t size_bytes, co_await volume->size());
    const uint64_t whole_bytes = in_whole_blocks(size_bytes, options.block_size_bytes);
    if (whole_bytes == 0 || whole_bytes > size_max)
        co_return fail(Errc::invalid, 0, "attach: the volume is smaller than a block");
    memory.header().volume_id = volume->id();
    const unsigned connections = memory.header().connections;
    Device device(kernel_,
                  {.volume = options.volume, .device = {}, .read_only = options.read_only, .connections = connections},
                  std::move(memory));
    co_await connecting_.acquire();
    const Result<> connected = co_await on_thread([&] { return device.connect(keeper_, whole_bytes); });
    if (!connected) {
        connecting_.release();
        volume.reset();  // it ends before the memory with its session
        co_return fail(connected.error());
    }
    Device& made = *devices_.emplace_back(std::make_unique<Device>(std::move(device)));
    connecting_.release();
    volumes_.keep_held(made.memory.header().volume_id);
    keeper_watch_.begin();
    serve(made, std::move(volume));
    const Use use(*this, made);
    co_await see_whether_kept(made);
    co_return made.about;
}

void Attachments::adopt(std::vector<Keeper::Kept> kept, std::optional<std::span<const uint64_t>> receipts) {
    for (size_t i = 0; i < kept.size(); ++i) {
        const std::string& name = kept[i].name;
        if (!Device::is_memory(name)) continue;
        Result<std::optional<Device>> adopted = Device::adopt(kernel_, kept, i);
        if (!adopted) {
            log::error("{}: it cannot be taken over from the process before: {}; tarn detach --force {} ends it", name,
                       log::describe(adopted.error()), name);
            left_.push_back(name);
            continue;
        }
        if (!*adopted) {
            log::info("{}: is not a device of ours any more", name);
            gate_.spawn(drop_from_keeper(name));
            continue;
        }
        Device& device = *devices_.emplace_back(std::make_unique<Device>(std::move(**adopted)));
        if (receipts)
            device.memory.add_receipts(*receipts);
        else
            device.memory.forget_receipts();
        volumes_.keep_held(device.memory.header().volume_id);
    }
    for (const auto& device : devices_) {
        device->is_opening = true;
        gate_.spawn(serve_again(*device));
        gate_.spawn(see_whether_kept(*device));
    }
    keeper_watch_.begin();
}

void Attachments::when_none_is_left(std::function<void()> then) {
    if (left_.empty()) return then();
    none_is_left_ = std::move(then);
}

// Its requests wait until the volume is there.
Task<> Attachments::serve_again(Device& device) {
    co_await CarryInterrupt(*device.ends);
    bool has_said = false;
    while (!stopping_ && !device.is_ending) {
        Result<std::shared_ptr<Volume>> volume = co_await open(device.memory, true);
        if (stopping_ || device.is_ending) break;
        if (!device.is_there()) {
            on_disconnected(device);
            break;
        }
        const bool was_deleted =
            volume ? (*volume)->id() != device.memory.header().volume_id : volume.error().code == Errc::not_found;
        device.is_lost = was_deleted || (!volume && volume.error().code == Errc::busy);
        if (device.is_lost) {
            log::error("{}: its volume {} {}; it is detached", device.about.device, log::printable(device.about.volume),
                       was_deleted ? "was deleted" : "is, or was meanwhile, open for writing on another host");
            break;
        }
        if (volume) {
            log::info("{} is volume {}, as before", device.about.device, log::printable(device.about.volume));
            serve(device, std::move(*volume));
            on_resized(device);  // the process before may have been killed as it told the kernel a size
            break;
        }
        if (!std::exchange(has_said, true))
            log::warning("{}: its volume {} cannot be opened yet, and its requests wait: {}", device.about.device,
                         log::printable(device.about.volume), log::describe(volume.error()));
        co_await loop_.sleep(retry_after);
    }
    device.is_opening = false;
    const auto end = [](Attachments& self, Device& lost) -> Task<> {
        if (const Result<> ended = co_await self.end_by_force(lost); !ended)
            log::error("{}: it cannot be ended: {}; tarn detach --force {} tries it again", lost.about.device,
                       log::describe(ended.error()), lost.about.device);
    };
    if (device.is_lost) gate_.spawn(end(*this, device));
    changed_.notify_all();
}

void Attachments::on_disconnected(Device& device) {
    log::info("{} was disconnected from volume {}", device.about.device, log::printable(device.about.volume));
    device.is_ending = true;
    gate_.spawn(forget(device));
}

// A connection that cannot be served is given up: the kernel gets another one.
void Attachments::serve(Device& device, std::shared_ptr<Volume> volume) {
    device.volume = std::move(volume);
    for (unsigned i = 0; i < device.sockets.size(); ++i) {
        const Result<> served = serve_connection(device, i);
        if (served || stopping_) continue;
        log::warning("{}: connection {} is given up: {}", device.about.device, i, log::describe(served.error()));
        ::shutdown(device.sockets[i].get(), SHUT_RDWR);
        gate_.spawn(look_after(device, i, nbd::DeviceConnection::End::lost));
    }
}

Result<> Attachments::serve_connection(Device& device, unsigned connection) {
    const std::string& name = device.about.device;
    const auto ended = [this, &device, connection](nbd::DeviceConnection::End how) {
        on_ended(device, connection, how);
    };
    UniqueFd socket(::fcntl(device.sockets[connection].get(), F_DUPFD_CLOEXEC, 0));
    if (!socket) return fail(Errc::io, errno, "attach: dup");
    TRY_VOID(server_.adopt({.socket = std::move(socket),
                            .memory = device.memory.log(connection),
                            .first_receipt = device.memory.first_receipt(connection),
                            .volume = device.volume,
                            .exported = device.exported(),
                            .export_ended = device.is_deleted,
                            .client = {.address = "device " + name, .text = "the kernel's device /dev/" + name},
                            .cpu = device.cpu_of(connection),
                            .ended = ended,
                            .resized = [this, &device] { on_resized(device); }}));
    device.is_served[connection] = true;
    return {};
}

// A request has met another size than the one before: nobody told us, or not yet.
void Attachments::on_resized(Device& device) {
    if (stopping_ || device.is_ending || std::exchange(device.follows_soon, true)) return;
    const auto follow = [](Attachments& self, Device& resized) -> Task<> {
        Result<> ignored;  // it is logged
        co_await self.follow_size(resized, ignored);
    };
    gate_.spawn(follow(*this, device));
}

Task<Result<>> Attachments::follow_size_of(VolumeId volume) {
    Result<> result;
    if (stopping_) co_return result;
    const Gate::Inside inside(gate_);
    Gate following;
    for (const auto& device : devices_)
        if (device->volume && device->volume->id() == volume) following.spawn(follow_size(*device, result));
    co_await following.close();
    co_return result;
}

// One after the other, so that the last size is the last one told. result stays as it is without an error.
Task<> Attachments::follow_size(Device& device, Result<>& result) {
    const Use use(*this, device);
    co_await CarryInterrupt(*device.ends);
    while (device.is_resizing) co_await changed_.wait();
    device.is_resizing = true;
    device.follows_soon = false;
    const Result<> told = co_await tell_size(device);
    if (!told && !device.is_ending && !stopping_) {
        if (!device.lacks_size)
            log::warning("{}: it does not get the size of its volume {}: {}; it is tried again", device.about.device,
                         log::printable(device.about.volume), log::describe(told.error()));
        result = told;
        if (!std::exchange(device.follows_later, true)) gate_.spawn(follow_size_later(device));
    }
    device.lacks_size = !told;
    device.is_resizing = false;  // the use's end wakes the next one
}

// Nobody else may ask for it, nor any request come.
Task<> Attachments::follow_size_later(Device& device) {
    const Use use(*this, device);
    co_await CarryInterrupt(*device.ends);
    co_await loop_.sleep(retry_after);
    device.follows_later = false;
    on_resized(device);
}

Task<Result<>> Attachments::tell_size(Device& device) const {
    CO_TRY(const uint64_t size_bytes, co_await device.volume->size());
    const uint64_t whole_bytes = in_whole_blocks(size_bytes, device.memory.header().block_size_bytes);
    const auto goes_on = [&] { return !device.is_ending && !stopping_; };
    if (device.has_size(whole_bytes) || !goes_on()) co_return Result<>{};
    if (whole_bytes > size_max) co_return fail(Errc::invalid, 0, "attach: a device is not that large");
    co_await none_waits(device, loop_, goes_on);
    if (!goes_on()) co_return Result<>{};
    CO_TRY_VOID(co_await on_thread([&] { return device.tell_size(whole_bytes); }));
    log::info("{} has {} bytes now, as its volume {}", device.about.device, whole_bytes,
              log::printable(device.about.volume));
    device.about.size_bytes = device.memory.header().size_bytes = whole_bytes;
    co_return Result<>{};
}

// The device waits for its connections before it is forgotten.
void Attachments::on_ended(Device& device, unsigned connection, nbd::DeviceConnection::End how) {
    device.is_served[connection] = false;
    if (!device.is_ending && !stopping_) gate_.spawn(look_after(device, connection, how));
    changed_.notify_all();
}

// The kernel has given up the connection, or somebody has disconnected the device; sysfs may take a moment to say so.
Task<> Attachments::look_after(Device& device, unsigned connection, nbd::DeviceConnection::End how) {
    constexpr int tries_in_silence = 20;
    bool is_there = how != nbd::DeviceConnection::End::disconnected;
    Result<> replaced = fail(Errc::io);
    if (device.is_looked_after[connection]) co_return;
    device.is_looked_after[connection] = true;
    const Use use(*this, device);
    for (int tries = 0; !replaced && !device.is_ending && !stopping_; ++tries) {
        if (tries == tries_in_silence)
            log::error(
                "{}: connection {} cannot be replaced: {}; it is tried again; tarn detach --force {} ends the device",
                device.about.device, connection, log::describe(replaced.error()), device.about.device);
        if (tries > 0 || how == nbd::DeviceConnection::End::lost) co_await loop_.sleep(retry_after);
        if (device.is_ending || stopping_) break;
        is_there = is_there && device.is_there();
        if (is_there) {
            replaced = co_await replace_socket(device, connection);
        } else {
            on_disconnected(device);
        }
    }
    device.is_looked_after[connection] = false;
}

// Also if there is nothing to replace any more. The kernel replaces a socket that it knows to be dead.
Task<Result<>> Attachments::replace_socket(Device& device, unsigned connection) {
    if (device.is_cut) {
        end_cut(device);
        co_return Result<>{};
    }
    ::shutdown(device.sockets[connection].get(), SHUT_RDWR);
    device.memory.header().has_lost_requests = 1;
    device.memory.clear_log(connection);
    const bool has_keeper = device.about.is_kept;
    const unsigned lost_before = lost_keepers_;
    const unsigned told_before = device.told_count;
    CO_TRY(std::optional<UniqueFd> socket,
           co_await on_thread([&] { return device.replace_socket(keeper_, has_keeper, connection); }));
    if (device.is_ending || stopping_) co_return Result<>{};
    if (!socket) {
        // A keeper that has just begun may have been told since.
        CO_TRY(const bool is_kept, co_await on_thread([&] { return keeper_.has(device.memory_name()); }));
        if (device.is_ending || stopping_) co_return Result<>{};
        if (is_kept || device.is_being_kept || lost_keepers_ != lost_before)
            co_return fail(Errc::unavailable, EAGAIN, "attach: the keeper has just begun");
        end_cut(device);
        co_return Result<>{};
    }
    device.sockets[connection] = std::move(*socket);
    ++device.replaced_count;
    // Who told it of all meanwhile told it of the one before.
    const bool may_have_other =
        device.about.is_kept && (!has_keeper || lost_keepers_ != lost_before || device.told_count != told_before);
    if (may_have_other) see_to_keeping(device);
    log::warning("{}: the kernel had given up connection {}, and has a new one", device.about.device, connection);
    co_return serve_connection(device, connection);
}

Task<> Attachments::stop() {
    stopping_ = true;
    co_await keeper_watch_.stop();
    co_await gate_.close();
    for (const auto& device : devices_) {
        if (device->about.is_kept)
            log::info("{} stays attached: its requests wait for the next start", device->about.device);
        else
            log::warning(
                "{0} stays attached, and tarn-keeper does not have it: its requests wait for tarn detach "
                "--force {0}",
                device->about.device);
        device->volume.reset();
    }
}

}  // namespace tarn
