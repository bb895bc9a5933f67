#include "daemon/mounts/mounts.hpp"

#include <algorithm>
#include <cerrno>

#include "daemon/mounts/mount_point.hpp"
#include "daemon/mounts/mount_users.hpp"
#include "utils/log.hpp"

namespace tarn {

// Of several at the path the last one, which is on top.
fuse::Mount* Mounts::find(const std::string& path) const {
    const auto found =
        std::ranges::find_if(mounts_.rbegin(), mounts_.rend(), [&](const auto& each) { return each->path() == path; });
    return found == mounts_.rend() ? nullptr : found->get();
}

bool Mounts::lives(const fuse::Mount* mount) const {
    return std::ranges::any_of(mounts_, [&](const auto& each) { return each.get() == mount; });
}

// What was taken from there lazily lives on while somebody uses it, or another mount namespace has a copy of it.
bool Mounts::is_taken(const std::string& path) const {
    const fuse::Mount* const mount = find(path);
    return mount && mount->is_there();
}

std::vector<Mount> Mounts::list() const {
    std::vector<Mount> list;
    for (const auto& mount : mounts_)
        if (find(mount->path()) == mount.get())
            list.push_back({.path = mount->path(), .read_only = mount->read_only()});
    return list;
}

Task<Result<>> Mounts::mount(Mount mount, Caller caller) {
    constexpr Error mounted_already{Errc::busy, EBUSY, "mount: the volumes are mounted there already"};
    const uid_t user = caller.user;
    if (is_taken(mount.path)) co_return fail(mounted_already);  // it would be no empty directory, or not the caller's
    CO_TRY(fuse::MountPoint point, co_await take_mount_point(mount.path, std::move(caller), named_));
    if (is_taken(mount.path)) co_return fail(mounted_already);
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
        if (lives(mount)) openers = mount->openers();
        co_return Unmounting{.busy = true, .users = co_await find_mount_users(path, std::move(openers))};
    }
    while (lives(mount)) co_await ended_.wait();
    co_return Unmounting{};
}

Task<> Mounts::stop() {
    std::vector<fuse::Mount*> all;
    for (const auto& mount : mounts_) all.push_back(mount.get());
    for (fuse::Mount* const mount : all)
        if (lives(mount)) co_await mount->stop();
    while (!mounts_.empty()) co_await ended_.wait();
}

}  // namespace tarn
