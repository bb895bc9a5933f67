#include <unistd.h>

#include <limits>

#include "frontends/fuse/file_system.hpp"
#include "utils/clock.hpp"
#include "utils/with_timeout.hpp"

namespace tarn::fuse {

namespace {

constexpr blksize_t preferred_transfer_size = 1 << 20;

constexpr int64_t ns_per_s = 1'000'000'000;

// The nanoseconds of a time before 1970 count forward, too.
timespec to_timespec(int64_t ns) {
    const int64_t fraction_ns = (ns % ns_per_s + ns_per_s) % ns_per_s;
    return {.tv_sec = ns / ns_per_s - (ns % ns_per_s < 0 ? 1 : 0), .tv_nsec = fraction_ns};
}
// What lies before 1677 or after 2262 becomes the first or the last time there is.
int64_t to_ns(const timespec& time) {
    int64_t ns = 0;
    if (__builtin_mul_overflow(int64_t{time.tv_sec}, ns_per_s, &ns) ||
        __builtin_add_overflow(ns, int64_t{time.tv_nsec}, &ns))
        return time.tv_sec < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
    return ns;
}

}  // namespace

struct stat FileSystem::directory_stat(NodeId id) const {
    const Attributes attributes{.modified_ns = mounted_ns_, .changed_ns = mounted_ns_, .user = user_, .group = group_};
    struct stat status = file_stat(id, attributes);
    status.st_mode = S_IFDIR | directory_mode_;
    status.st_nlink = 2;
    return status;
}

struct stat FileSystem::file_stat(NodeId id, const Attributes& attributes, bool has_name) const {
    struct stat status{};
    status.st_ino = id;
    status.st_mode = S_IFREG | (attributes.mode & 0777);
    status.st_nlink = has_name ? 1 : 0;
    status.st_uid = attributes.user;
    status.st_gid = attributes.group;
    status.st_size = static_cast<off_t>(attributes.size_bytes);
    status.st_blocks = static_cast<blkcnt_t>((attributes.size_bytes + 511) / 512);
    status.st_mtim = status.st_atim = to_timespec(attributes.modified_ns);
    status.st_ctim = to_timespec(attributes.changed_ns);
    status.st_blksize = preferred_transfer_size;
    return status;
}

Task<Result<VolumeEntry>> FileSystem::entry_of(NodeId id, Find find) const {
    const std::optional<Node> node = nodes_.find(id);
    if (!node || node->directory) co_return fail(Errc::not_found, 0, "fuse.node");
    CO_TRY(VolumeEntry entry, co_await interruptible((volumes_.*find)(node->path)));
    if (node_of_volume(entry.id) != id) co_return fail(Errc::not_found, 0, "fuse.node: another volume has the name");
    co_return entry;
}

Task<Result<Attributes>> FileSystem::glance_at(Volume& volume) const {
    if (const std::optional<Attributes> attributes = volume.try_attributes()) co_return *attributes;
    co_return co_await volumes_.glance_at(volume.id(), volume.attributes());
}

std::shared_ptr<Volume> FileSystem::open_here(NodeId id) {
    std::shared_ptr<Volume> volume;
    files_.for_each([&](const OpenFile& file) {
        if (node_of_volume(file.volume->id()) == id) volume = file.volume;
    });
    return volume;
}

Task<Answer> FileSystem::get_attributes(fuse_req_t request, NodeId id, OpenFile* file) {
    const std::optional<Node> node = nodes_.find(id);
    if (node && node->directory) {
        const struct stat status = directory_stat(id);
        fuse_reply_attr(request, &status, 0);
        co_return Answer();
    }
    // The kernel asks by the node, also for fstat.
    Attributes attributes;
    bool has_name = true;
    if (file) {
        CO_TRY(attributes, co_await glance_at(*file->volume));
    } else if (const Result<VolumeEntry> entry = co_await entry_of(id, &Volumes::glance); entry) {
        attributes = entry->attributes;
    } else {
        const std::shared_ptr<Volume> open = entry.error().code == Errc::not_found ? open_here(id) : nullptr;
        if (!open) co_return fail(entry.error());
        CO_TRY(attributes, co_await glance_at(*open));
        has_name = false;
    }
    const struct stat status = file_stat(id, attributes, has_name);
    fuse_reply_attr(request, &status, 0);
    co_return Answer();
}

Task<Result<Attributes>> FileSystem::change(NodeId id, AttributeChange change, OpenFile* file) {
    if (file) co_return co_await file->volume->change_attributes(change);
    CO_TRY(const std::shared_ptr<Volume> volume, co_await open_node(id));
    co_return co_await volume->change_attributes(change);
}

Task<Answer> FileSystem::set_attributes(fuse_req_t request, NodeId id, struct stat wanted, int which, OpenFile* file) {
    AttributeChange wish;
    if ((which & FUSE_SET_ATTR_SIZE) != 0) wish.size_bytes = static_cast<uint64_t>(wanted.st_size);
    // Never more than permission bits: a volume is no program to run as somebody else.
    if ((which & FUSE_SET_ATTR_MODE) != 0) wish.mode = wanted.st_mode & 0777;
    if ((which & FUSE_SET_ATTR_UID) != 0) wish.user = wanted.st_uid;
    if ((which & FUSE_SET_ATTR_GID) != 0) wish.group = wanted.st_gid;
    if ((which & FUSE_SET_ATTR_MTIME) != 0) wish.modified_ns = to_ns(wanted.st_mtim);
    if ((which & FUSE_SET_ATTR_MTIME_NOW) != 0) wish.modified_ns = realtime_ns();
    const std::optional<Node> node = nodes_.find(id);
    if (node && node->directory) co_return EPERM;  // it has no attributes to keep
    if (wish.size_bytes && *wish.size_bytes > volume_size_max) co_return EFBIG;
    // The access time is not kept: setting nothing else changes nothing.
    if (!wish.size_bytes && !wish.mode && !wish.user && !wish.group && !wish.modified_ns)
        co_return co_await get_attributes(request, id, file);
    CO_TRY(const Attributes changed, co_await change(id, wish, file));
    const struct stat status = file_stat(id, changed);
    fuse_reply_attr(request, &status, 0);
    co_return Answer();
}

}  // namespace tarn::fuse
