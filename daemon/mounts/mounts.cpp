#include "daemon/mounts/mounts.hpp"

#include <algorithm>
#include <cerrno>

#include "daemon/mounts/mount_point.hpp"
#include "daemon/mounts/mount_users.hpp"
#include "utils/log.hpp"

namespace tarn {

fuse::Mount* Mounts::find(const std::string& path) const {
    const auto found = std::ranges::find_if(mounts_, [&](const auto& each) { return each->path() == path; });
    return found == mounts_.end() ? nullptr : found->get();
}

std::vector<Mount> Mounts::list() const {
    std::vector<Mount> list;
    for (const auto& mount : mounts_) list.push_back({.path = mount->path(), .read_only = mount->read_only()});
    return list;
}

Task<Result<>> Mounts::mount(Mount mount, Caller caller) {
    constexpr Error mounted_already{Errc::busy, EBUSY, "mount: the volumes are mounted there already"};
    const uid_t user = caller.user;
    if (find(mount.path)) co_return fail(mounted_already);  // it would be no empty directory, or not the caller's
    CO_TRY(fuse::MountPoint point, co_await take_mount_point(mount.path, std::move(caller), named_));
    if (find(mount.path)) co_return fail(mounted_already);
    fuse::MountOptions options{.path = mount.path, .point = std::move(point), .read_only = mount.read_only};
    CO_TRY(std::unique_ptr<fuse::Mount> made, fuse::Mount::create(shards_, volumes_, std::move(options)));
    mounts_.push_back(std::move(made));
    shards_.front()->spawn(serve(*mounts_.back()));
    log::info("mounted the volumes at {} for user {}", log::printable(mount.path), user);
    co_return Result<>{};
}

Task<> Mounts::serve(fuse::Mount& mount) {
    co_await mount.serve();
    log::info("unmounted {}", log::printable(mount.path()));
    std::erase_if(mounts_, [&](const auto& each) { return each.get() == &mount; });
    ended_.notify_all();
}

// It may end at any time, by somebody else.
Task<Result<Unmounting>> Mounts::unmount(std::string path, bool force) {
    fuse::Mount* const mount = find(path);
    if (!mount) co_return fail(Errc::not_found, 0, "mount: nothing of tarn is mounted there");
    if (force) {
        co_await mount->stop();
    } else if (const Result<> unmounted = co_await mount->unmount(); !unmounted) {
        if (unmounted.error().code != Errc::busy) co_return fail(unmounted.error());
        std::vector<pid_t> openers;
        if (fuse::Mount* const still = find(path)) openers = still->openers();
        co_return Unmounting{.busy = true, .users = co_await find_mount_users(path, std::move(openers))};
    }
    while (find(path)) co_await ended_.wait();
    co_return Unmounting{};
}

Task<> Mounts::stop() {
    for (const Mount& mount : list())
        if (fuse::Mount* const still = find(mount.path)) co_await still->stop();
    while (!mounts_.empty()) co_await ended_.wait();
}

}  // namespace tarn
