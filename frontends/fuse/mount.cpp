#include "frontends/fuse/mount.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>

#include "utils/assert.hpp"
#include "utils/run_on.hpp"

namespace tarn::fuse {

namespace {

// Leaves a directory that can be mounted on, or says why not.
Result<> prepare(const std::string& path) {
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0 && errno == ENOTCONN) {
        // The daemon that served this mount is gone.
        if (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
            return fail(Errc::io, errno, "fuse.mount: cannot remove the mount of a daemon that died");
    }
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
    const std::string settings = fmt::format("fsname=tarn,subtype=tarn,default_permissions,nosuid,nodev,max_read={}{}",
                                             transfer_size_max, options_.allow_other ? ",allow_other" : "");
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
    file_system_.close_all();
}

Task<> Mount::serve_channel(Channel& channel) {
    co_await run_on(channel.loop(), channel.serve());
}

Task<> Mount::stop() {
    for (const std::unique_ptr<Channel>& channel : channels_) co_await run_on(channel->loop(), stop_channel(*channel));
}

Task<> Mount::stop_channel(Channel& channel) {
    channel.stop();
    co_return;
}

}  // namespace tarn::fuse
