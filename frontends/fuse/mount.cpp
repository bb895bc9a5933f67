#include "frontends/fuse/mount.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>

#include "utils/assert.hpp"
#include "utils/log.hpp"
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
        return fail(errno == ENOENT ? Errc::not_found : Errc::io, errno, "fuse.mount: directory");
    if (!S_ISDIR(status.st_mode)) return fail(Errc::invalid, ENOTDIR, "fuse.mount");
    return {};
}

}  // namespace

Result<std::unique_ptr<Mount>> Mount::create(std::vector<Loop*> shards, Volumes& volumes, MountOptions options) {
    TRY_VOID(prepare(options.path));
    std::unique_ptr<Mount> mount(new Mount(volumes, std::move(options)));
    TRY_VOID(mount->attach(shards));
    return mount;
}

Mount::Mount(Volumes& volumes, MountOptions options)
    : options_(std::move(options)), file_system_(volumes, options_.directory_mode) {}

Mount::~Mount() {
    if (mounted_) fuse_session_unmount(session_);
    if (session_) fuse_session_destroy(session_);
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
    if (fuse_session_mount(session_, options_.path.c_str()) != 0) return fail(Errc::io, errno, "fuse.mount");
    mounted_ = true;
    const int device = fuse_session_fd(session_);
    if (::fcntl(device, F_SETFL, ::fcntl(device, F_GETFL) | O_NONBLOCK) != 0)
        return fail(Errc::io, errno, "fuse.mount: fcntl");
    for (Loop* const shard : shards) channels_.push_back(std::make_unique<Channel>(*shard, session_));
    return {};
}

Channel& Mount::channel_here() {
    for (const std::unique_ptr<Channel>& channel : channels_)
        if (&channel->loop() == Loop::current()) return *channel;
    assertion_failed("a request is read on a shard of its mount", __FILE__, __LINE__);
}

Task<> Mount::serve() {
    Gate gate;
    for (const std::unique_ptr<Channel>& channel : channels_) gate.spawn(serve_channel(*channel));
    co_await gate.close();
    // Detaches lazily and closes the device, which ends what still waits in the kernel.
    fuse_session_unmount(session_);
    mounted_ = false;
    // Under load the library has been seen to leave it; the device is closed, so it is dead by now.
    if (const Result<> removed = remove_dead_mounts(options_.path); !removed)
        log::warning("fuse: {}: {}", log::printable(options_.path), log::describe(removed.error()));
    file_system_.close_all();
}

Task<> Mount::serve_channel(Channel& channel) {
    co_await run_on(channels_.front()->loop(), channel.loop(), channel.serve());
}

Task<> Mount::stop() {
    for (const std::unique_ptr<Channel>& channel : channels_)
        co_await run_on(channels_.front()->loop(), channel->loop(), stop_channel(*channel));
}

Task<> Mount::stop_channel(Channel& channel) {
    channel.stop();
    co_return;
}

}  // namespace tarn::fuse
