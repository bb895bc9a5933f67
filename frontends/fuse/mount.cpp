#include "frontends/fuse/mount.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "utils/assert.hpp"
#include "utils/file_text.hpp"
#include "utils/log.hpp"
#include "utils/on_thread.hpp"
#include "utils/run_on.hpp"

namespace tarn::fuse {

namespace {

// Removes what daemons that are gone left mounted there, however many lie on top of each other. ECONNABORTED: the
// daemon died while we asked; the kernel lets its device go a little later than the process.
Result<> remove_dead_mounts(const std::string& path) {
    struct stat status{};
    while (::stat(path.c_str(), &status) != 0 && (errno == ENOTCONN || errno == ECONNABORTED))
        if (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
            return fail(Errc::io, errno, "fuse.mount: cannot remove the mount of a daemon that died");
    return {};
}

// Leaves a directory that can be mounted on, or says why not.
Result<> prepare(const std::string& path) {
    TRY_VOID(remove_dead_mounts(path));
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0)
        return fail(errno == ENOENT ? Errc::not_found : Errc::io, errno, "fuse.mount: there is no such directory");
    if (!S_ISDIR(status.st_mode)) return fail(Errc::invalid, ENOTDIR, "fuse.mount: it is not a directory");
    return {};
}

// The kernel offers rings only when this says so; before Linux 6.14 there is no such file. And who is not root cannot
// end the connection, which a ring must before it can be taken down.
bool rings_possible() {
    if (::geteuid() != 0) return false;
    std::ifstream parameter("/sys/module/fuse/parameters/enable_uring");
    return parameter.get() == 'Y';
}

// With MNT_FORCE the connection ends also for files that are still open; the kernel then waits until requests of rings
// that it was just handing out were taken back, by the loops: so it waits on a thread of its own. Awaits to 0 or errno.
Task<int> unmount_path(std::string path, int flags) {
    return on_thread(
        [path = std::move(path), flags] { return ::umount2(path.c_str(), flags | UMOUNT_NOFOLLOW) == 0 ? 0 : errno; });
}

}  // namespace

Result<std::unique_ptr<Mount>> Mount::create(std::vector<Loop*> shards, Volumes& volumes, MountOptions options) {
    if (!options.point) TRY_VOID(prepare(options.path));
    std::unique_ptr<Mount> mount(new Mount(volumes, std::move(options)));
    TRY_VOID(mount->attach(shards));
    return mount;
}

Mount::Mount(Volumes& volumes, MountOptions options)
    : options_(std::move(options)), file_system_(volumes, options_.directory_mode) {}

Mount::~Mount() {
    if (mounted_) detach();
    if (session_) fuse_session_destroy(session_);
}

std::string Mount::target() const {
    if (!options_.point) return options_.path;
    return fmt::format("/proc/self/fd/{}/{}", options_.point->parent.get(), options_.point->name);
}

// By the table of mounts: a question to the mount itself would wait for the thread that asks.
bool Mount::is_there() const {
    std::error_code error;
    const std::filesystem::path asked = options_.path;
    const std::filesystem::path path =
        options_.point
            ? std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", options_.point->parent.get()), error) /
                  options_.point->name
            : std::filesystem::canonical(asked.parent_path(), error) / asked.filename();
    return std::ranges::any_of(
        mounts_seen(), [&](const MountSeen& mount) { return mount.type == "fuse.tarn" && mount.point == path; });
}

// As the library mounts, but on what the descriptor is of.
Result<> Mount::mount_on(const MountPoint& point) {
    UniqueFd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!device)
        return fail(Errc::io, errno, "fuse.mount: /dev/fuse cannot be opened; the kernel module fuse is needed");
    const std::string on = fmt::format("/proc/self/fd/{}", point.directory.get());
    const std::string settings =
        fmt::format("fd={},rootmode=40000,user_id={},group_id={},default_permissions,max_read={}{}", device.get(),
                    ::geteuid(), ::getegid(), transfer_size_max, options_.allow_other ? ",allow_other" : "");
    const unsigned long flags = MS_NOSUID | MS_NODEV | (options_.read_only ? MS_RDONLY : 0);
    if (::mount("tarn", on.c_str(), "fuse.tarn", flags, settings.c_str()) != 0)
        return fail(errno == EPERM ? Errc::refused : Errc::io, errno, "fuse.mount: the kernel does not mount there");
    mounted_ = true;
    // From here on the device is the library's. It takes no part in the end of a mount that it has not made.
    if (fuse_session_mount(session_, fmt::format("/dev/fd/{}", device.get()).c_str()) != 0)
        return fail(Errc::io, errno, "fuse.mount: session");
    (void)device.release();
    return {};
}

// The kernel ends what still waits, and the mount goes lazily; unless it has ended by now, and another one may be
// there.
void Mount::detach() {
    mounted_ = false;
    if (!options_.point) return fuse_session_unmount(session_);
    pollfd device{.fd = fuse_session_fd(session_), .events = 0, .revents = 0};
    if (::poll(&device, 1, 0) > 0 && (device.revents & POLLERR) != 0) return;
    if (::umount2(target().c_str(), MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
        log::warning("fuse: {}: cannot unmount: {}; unmount it by hand", log::printable(options_.path),
                     std::strerror(errno));
}

Result<> Mount::attach(const std::vector<Loop*>& shards) {
    fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
    const std::string settings =
        fmt::format("fsname=tarn,subtype=tarn,default_permissions,nosuid,nodev,max_read={}{}{}", transfer_size_max,
                    options_.allow_other ? ",allow_other" : "", options_.read_only ? ",ro" : "");
    fuse_opt_add_arg(&arguments, "tarnd");
    fuse_opt_add_arg(&arguments, "-o");
    fuse_opt_add_arg(&arguments, settings.c_str());
    session_ = fuse_session_new(&arguments, &operations(), sizeof(fuse_lowlevel_ops), this);
    fuse_opt_free_args(&arguments);
    if (!session_) return fail(Errc::invalid, 0, "fuse.mount: options");
    errno = 0;
    if (options_.point && ::geteuid() == 0) {
        TRY_VOID(mount_on(*options_.point));
    } else {
        options_.point.reset();  // it takes a helper, which knows paths only
        if (fuse_session_mount(session_, options_.path.c_str()) != 0)
            return fail(errno == EACCES || errno == EPERM ? Errc::refused : Errc::io, errno,
                        "fuse.mount: to mount, tarnd needs root, or fusermount3, and /dev/fuse");
        mounted_ = true;
    }
    const int device = fuse_session_fd(session_);
    if (::fcntl(device, F_SETFL, ::fcntl(device, F_GETFL) | O_NONBLOCK) != 0)
        return fail(Errc::io, errno, "fuse.mount: fcntl");
    for (unsigned i = 0; i < shards.size(); ++i)
        channels_.push_back(std::make_unique<Channel>(*shards[i], i, session_, [this] { return open_rings(); }));
    if (!rings_possible()) return {};
    if (const Result<> made = make_rings(); !made)
        log::warning("fuse: {}: requests come over the device, not over io_uring: {}", log::printable(options_.path),
                     log::describe(made.error()));
    return {};
}

// Replies are then ours to send, each the way its request came.
Result<> Mount::make_rings() {
    std::vector<Loop*> shards;
    for (const std::unique_ptr<Channel>& channel : channels_) shards.push_back(&channel->loop());
    TRY(const std::vector<std::vector<RingQueue>> queues, ring_queues(shards));
    std::vector<std::unique_ptr<Ring>> rings;
    for (size_t i = 0; i < shards.size(); ++i) {
        TRY(std::unique_ptr<Ring> ring, Ring::create(*shards[i], session_, queues[i]));
        rings.push_back(std::move(ring));
    }
    const fuse_custom_io io{
        .writev =
            [](int device, iovec* parts, int count, void* mount) {
                Channel& channel = static_cast<Mount*>(mount)->channel_here();
                return channel.reply(device, {parts, static_cast<size_t>(count)});
            },
        .read = [](int device, void* into, size_t size_bytes, void*) { return ::read(device, into, size_bytes); }};
    if (fuse_session_custom_io(session_, &io, fuse_session_fd(session_)) != 0)
        return fail(Errc::io, ENOMEM, "fuse.mount");
    for (size_t i = 0; i < rings.size(); ++i) channels_[i]->set_ring(std::move(rings[i]));
    return {};
}

Channel& Mount::channel_here() {
    for (const std::unique_ptr<Channel>& channel : channels_)
        if (&channel->loop() == Loop::current()) return *channel;
    assertion_failed("a request is read on a shard of its mount", __FILE__, __LINE__);
}

Task<> Mount::serve() {
    Gate gate;
    Loop& first = channels_.front()->loop();
    for (const std::unique_ptr<Channel>& channel : channels_)
        gate.spawn(run_on(first, channel->loop(), channel->serve()));
    co_await gate.close();
    for (const std::unique_ptr<Channel>& channel : channels_)
        co_await run_on(first, channel->loop(), channel->close_interrupts());
    if (rings_open_) co_await end_connection();
    detach();
    // Under load the library has been seen to leave it; the device is closed, so it is dead by now.
    if (options_.point) {
        options_.point.reset();
    } else if (const Result<> removed = remove_dead_mounts(options_.path); !removed)
        log::warning("fuse: {}: cannot unmount: {}; unmount it by hand", log::printable(options_.path),
                     log::describe(removed.error()));
    file_system_.close_all();
    co_await stops_.close();
}

// Until every queue has an entry, the kernel lets all other requests wait.
Task<> Mount::open_rings() {
    rings_open_ = true;
    log::info("fuse: {}: requests come over io_uring", log::printable(options_.path));
    for (const std::unique_ptr<Channel>& channel : channels_) co_await run_on(channel->loop(), channel->open_ring());
}

// What the rings hold, they hold until the connection ended; from outside it may have.
Task<> Mount::end_connection() {
    if (!fuse_session_exited(session_))
        if (const int error_number = co_await unmount_path(options_.path, MNT_FORCE | MNT_DETACH); error_number != 0)
            log::warning("fuse: {}: cannot unmount: {}; waits until its connection ends: unmount it where it is now",
                         log::printable(options_.path), std::strerror(error_number));
    for (const std::unique_ptr<Channel>& channel : channels_)
        co_await run_on(channels_.front()->loop(), channel->loop(), channel->close_ring());
}

Task<> Mount::stop() {
    if (stops_.closed()) co_return;  // it has ended
    stops_.enter();
    for (const std::unique_ptr<Channel>& channel : channels_)
        co_await run_on(channels_.front()->loop(), channel->loop(), channel->stop());
    stops_.leave();
}

Task<Result<>> Mount::unmount() {
    // The descriptor of the directory above is to stay until it was used.
    const UniqueFd above(options_.point ? ::fcntl(options_.point->parent.get(), F_DUPFD_CLOEXEC, 0) : -1);
    const std::string path =
        options_.point ? fmt::format("/proc/self/fd/{}/{}", above.get(), options_.point->name) : options_.path;
    const int error_number = co_await unmount_path(path, 0);
    if (error_number == EBUSY) co_return fail(Errc::busy, EBUSY, "fuse.umount: it is in use");
    if (error_number != 0) co_return fail(Errc::io, error_number, "fuse.umount: it cannot be unmounted");
    co_return Result<>{};
}

}  // namespace tarn::fuse
