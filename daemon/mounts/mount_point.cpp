#include "daemon/mounts/mount_point.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "utils/file_text.hpp"
#include "utils/on_thread.hpp"

namespace tarn {

namespace {

// The rights of one user, for this thread only: so by system calls, where the library's functions change all threads.
// The process must be root, or the user be its own.
class Rights {
  public:
    static Result<std::unique_ptr<Rights>> of(const Caller& caller) {
        if (::geteuid() != 0) {
            if (caller.user == ::geteuid()) return std::unique_ptr<Rights>();
            return fail(Errc::refused, 0, "mount: a tarnd that is not root mounts for its own user only");
        }
        auto rights = std::make_unique<Rights>();
        rights->before_ = Caller::self();
        rights->dumpable_ = ::prctl(PR_GET_DUMPABLE);
        if (!take(caller)) return fail(Errc::refused, errno, "mount: cannot look with the caller's rights");
        return rights;
    }
    Rights() = default;
    Rights(const Rights&) = delete;
    ~Rights() {
        // Back to root first, whom the rest is allowed.
        (void)::syscall(SYS_setresuid, -1, before_.user, -1);
        (void)take(before_);
        // A change of users keeps the whole process from leaving a core behind.
        if (dumpable_ == 1) ::prctl(PR_SET_DUMPABLE, 1);
    }

  private:
    static bool take(const Caller& who) {
        return ::syscall(SYS_setgroups, who.groups.size(), who.groups.data()) == 0 &&
               ::syscall(SYS_setresgid, -1, who.group, -1) == 0 && ::syscall(SYS_setresuid, -1, who.user, -1) == 0;
    }
    Caller before_;
    int dumpable_ = 0;
};

std::string path_of(const fuse::MountPoint& point) {
    return fmt::format("/proc/self/fd/{}/{}", point.parent.get(), point.name);
}

std::unexpected<Error> cannot_open(int error_number) {
    switch (error_number) {
        case ENOENT: return fail(Errc::not_found, ENOENT, "mount: there is no such directory");
        case ENOTDIR: return fail(Errc::invalid, ENOTDIR, "mount: it is not a directory");
        case ELOOP: return fail(Errc::invalid, ELOOP, "mount: it is a symbolic link; name the directory itself");
        case EACCES:
        case EPERM: return fail(Errc::refused, error_number, "mount: you may not look at the directory");
        default: return fail(Errc::io, error_number, "mount: the directory cannot be opened");
    }
}

Result<> open_point(fuse::MountPoint& point, const std::filesystem::path& path) {
    point.name = path.filename().string();
    if (point.name.empty() || point.name == "." || point.name == "..")
        return fail(Errc::invalid, 0, "mount: the path does not end in a name");
    point.parent = UniqueFd(::open(path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!point.parent) return cannot_open(errno);
    point.directory =
        UniqueFd(::openat(point.parent.get(), point.name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!point.directory) return cannot_open(errno == ENOTDIR ? ENOTDIR : errno);
    return {};
}

bool is_dead(const fuse::MountPoint& point) {
    struct stat status{};
    return ::fstat(point.directory.get(), &status) != 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

// Whether it is of a tarnd, and not somebody else's that is dead.
bool is_tarns(int directory) {
    const std::string id = value_of(fmt::format("/proc/self/fdinfo/{}", directory), "mnt_id:");
    return std::ranges::any_of(mounts_seen(),
                               [&](const MountSeen& mount) { return mount.id == id && mount.type == "fuse.tarn"; });
}

Result<bool> is_empty(int directory) {
    const int fd = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return cannot_open(errno);
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(fd), ::closedir);
    while (const dirent* const entry = ::readdir(entries.get()))
        if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) return false;
    return true;
}

// faccessat() of the library does without AT_EMPTY_PATH.
bool may_write(int directory) {
    return ::syscall(SYS_faccessat2, directory, "", W_OK | X_OK, AT_EMPTY_PATH | AT_EACCESS) == 0;
}

// With the rights of the caller.
Result<> check_rights(int directory) {
    if (!may_write(directory))
        return fail(Errc::refused, 0,
                    "mount: you may not write the directory; make it yours, or name it in [fuse] mount_points of the "
                    "configuration");
    TRY(const bool empty, is_empty(directory));
    if (!empty)
        return fail(Errc::busy, ENOTEMPTY,
                    "mount: the directory is not empty; take an empty one, or name it in [fuse] mount_points of the "
                    "configuration");
    return {};
}

Result<fuse::MountPoint> look(const std::string& path, const Caller& caller, bool named) {
    for (;;) {
        fuse::MountPoint point;
        TRY(std::unique_ptr<Rights> rights, named ? std::unique_ptr<Rights>() : Rights::of(caller));
        TRY_VOID(open_point(point, path));
        if (!is_dead(point)) {
            if (!named) TRY_VOID(check_rights(point.directory.get()));
            return point;
        }
        rights.reset();
        if (!is_tarns(point.directory.get()))
            return fail(Errc::busy, ENOTCONN,
                        "mount: the mount of another program that died is there; unmount it first");
        point.directory.reset();
        if (::umount2(path_of(point).c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
            return fail(Errc::io, errno, "mount: cannot remove the mount of a daemon that died");
    }
}

}  // namespace

Task<Result<fuse::MountPoint>> take_mount_point(std::string path, Caller caller, std::vector<std::string> named) {
    const bool is_named = std::ranges::find(named, path) != named.end();
    co_return co_await on_thread([&] { return look(path, caller, is_named); });
}

}  // namespace tarn
