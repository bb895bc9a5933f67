#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>

#include "frontends/fuse/file_system.hpp"
#include "utils/clock.hpp"
#include "utils/with_timeout.hpp"

namespace tarn::fuse {

FileSystem::FileSystem(Volumes& volumes, mode_t directory_mode)
    : volumes_(volumes),
      directory_mode_(directory_mode),
      user_(::geteuid()),
      group_(::getegid()),
      mounted_ns_(realtime_ns()) {}

void FileSystem::close_all() {
    files_.close_all();
    directories_.close_all();
}

std::vector<pid_t> FileSystem::openers() {
    std::vector<pid_t> threads;
    files_.for_each([&](const OpenFile& file) { threads.push_back(file.opener); });
    return threads;
}

Result<std::string> FileSystem::path_below(NodeId parent, const std::string& name) const {
    const std::optional<Node> directory = nodes_.find(parent);
    if (!directory || !directory->directory) return fail(Errc::not_found, 0, "fuse.parent");
    return join(directory->path, name);
}

fuse_entry_param FileSystem::remember_file(const VolumeEntry& entry) {
    fuse_entry_param known{};
    known.ino = node_of_volume(entry.id);
    known.generation = 1;
    known.attr = file_stat(known.ino, entry.attributes);
    nodes_.remember(known.ino, {.path = entry.name, .directory = false});
    return known;
}

Task<Result<fuse_entry_param>> FileSystem::entry_at(std::string path) {
    if (path.size() > volume_name_size_max) co_return fail(Errc::not_found, 0, "fuse.lookup");
    const Result<VolumeEntry> entry = co_await interruptible(volumes_.glance(path));
    if (entry) co_return remember_file(*entry);
    if (entry.error().code != Errc::not_found) co_return fail(entry.error());
    CO_TRY(const std::vector<VolumeEntry> list, co_await interruptible(volumes_.names()));
    if (!is_directory(list, path)) co_return fail(Errc::not_found, 0, "fuse.lookup");
    fuse_entry_param known{};
    known.ino = node_of_directory(path);
    known.generation = 1;
    known.attr = directory_stat(known.ino);
    nodes_.remember(known.ino, {.path = std::move(path), .directory = true});
    co_return known;
}

Task<Answer> FileSystem::lookup(fuse_req_t request, NodeId parent, std::string name) {
    CO_TRY(std::string path, path_below(parent, name));
    CO_TRY(const fuse_entry_param entry, co_await entry_at(std::move(path)));
    // A lookup nobody waits for any more must not be counted.
    if (fuse_reply_entry(request, &entry) != 0) nodes_.forget(entry.ino, 1);
    co_return Answer();
}

Task<Answer> FileSystem::forget(fuse_req_t request, NodeId id, uint64_t lookups) {
    nodes_.forget(id, lookups);
    fuse_reply_none(request);
    co_return Answer();
}

Task<Answer> FileSystem::create(fuse_req_t request, NodeId parent, std::string name, mode_t mode, fuse_file_info info) {
    const fuse_ctx* const context = fuse_req_ctx(request);
    const Attributes attributes{.mode = mode & 0777, .user = context->uid, .group = context->gid};
    CO_TRY(const std::string path, path_below(parent, name));
    if (path.size() > volume_name_size_max) co_return ENAMETOOLONG;
    // The registrar decides who of several creators was first, whatever their hosts.
    Result<VolumeEntry> entry = co_await interruptible(volumes_.create(path, true, attributes));
    if (!entry && entry.error().code == Errc::exists && (info.flags & O_EXCL) == 0)
        entry = co_await interruptible(volumes_.find(path));
    if (!entry) co_return fail(entry.error());
    CO_TRY(std::shared_ptr<Volume> volume, co_await open_volume(*entry));
    OpenFile* const file = files_.add({.volume = std::move(volume), .opener = context->pid});
    const fuse_entry_param known = remember_file(*entry);
    info.fh = reinterpret_cast<uint64_t>(file);
    info.direct_io = 1;
    if (fuse_reply_create(request, &known, &info) == 0) co_return Answer();
    files_.remove(file);  // nobody waits for it any more
    nodes_.forget(known.ino, 1);
    co_return Answer();
}

Task<Answer> FileSystem::unlink(NodeId parent, std::string name) {
    CO_TRY(const std::string path, path_below(parent, name));
    CO_TRY(const Removal removed, co_await interruptible(volumes_.remove(path, false)));
    co_return removed.users.empty() ? 0 : EBUSY;
}

Task<Result<>> FileSystem::fill(OpenDirectory& directory) {
    CO_TRY(const std::vector<VolumeEntry> list, co_await interruptible(volumes_.names()));
    directory.entries = {{".", node_of_directory(directory.path), S_IFDIR}, {"..", root_node, S_IFDIR}};
    for (Child& child : children(list, directory.path)) {
        const NodeId id =
            child.volume ? node_of_volume(child.volume->id) : node_of_directory(join(directory.path, child.name));
        const mode_t type = child.volume ? S_IFREG : S_IFDIR;
        directory.entries.push_back({std::move(child.name), id, type});
    }
    co_return Result<>{};
}

Task<Answer> FileSystem::open_directory(fuse_req_t request, NodeId id, fuse_file_info info) {
    std::optional<Node> node = nodes_.find(id);
    if (!node || !node->directory) co_return node ? ENOTDIR : ENOENT;
    OpenDirectory* const directory = directories_.add({.path = std::move(node->path), .entries = {}});
    info.fh = reinterpret_cast<uint64_t>(directory);
    if (fuse_reply_open(request, &info) != 0) directories_.remove(directory);
    co_return Answer();
}

Task<Answer> FileSystem::read_directory(fuse_req_t request, size_t size_bytes, off_t cursor, fuse_file_info info) {
    auto& directory = *reinterpret_cast<OpenDirectory*>(info.fh);
    if (cursor == 0) CO_TRY_VOID(co_await fill(directory));
    std::vector<char> bytes(std::min(size_bytes, transfer_size_max));
    size_t used = 0;
    for (auto at = static_cast<size_t>(cursor); at < directory.entries.size(); ++at) {
        const OpenDirectory::Entry& entry = directory.entries[at];
        struct stat status{};
        status.st_ino = entry.id;
        status.st_mode = entry.type;
        const size_t entry_size = fuse_add_direntry(request, bytes.data() + used, bytes.size() - used,
                                                    entry.name.c_str(), &status, static_cast<off_t>(at + 1));
        if (entry_size > bytes.size() - used) break;
        used += entry_size;
    }
    fuse_reply_buf(request, bytes.data(), used);
    co_return Answer();
}

Task<Answer> FileSystem::release_directory(fuse_file_info info) {
    directories_.remove(reinterpret_cast<OpenDirectory*>(info.fh));
    co_return 0;
}

// fsync of a directory. The kernel sends no syncfs to us, so this is how "flush everything" is said (peers do not).
Task<Answer> FileSystem::flush_everything() {
    CO_TRY(const std::vector<VolumeEntry> list, co_await interruptible(volumes_.names()));
    int error_number = 0;
    for (const VolumeEntry& entry : list) {
        const Result<std::shared_ptr<Volume>> volume = co_await interruptible(volumes_.open(entry.name, Access::read));
        if (!volume && volume.error().code == Errc::not_found) continue;  // removed meanwhile
        if (!volume) {
            error_number = to_errno(volume.error());
            continue;
        }
        const Result<> flushed = co_await (*volume)->flush();
        if (!flushed && flushed.error().code != Errc::not_found) error_number = to_errno(flushed.error());
    }
    co_return error_number;
}

Task<Answer> FileSystem::report_space(fuse_req_t request) {
    CO_TRY(const Space space, co_await interruptible(volumes_.space()));
    struct statvfs status{};
    status.f_bsize = status.f_frsize = page_size;
    status.f_blocks = space.total_bytes / page_size;
    status.f_bfree = status.f_bavail = space.free_bytes / page_size;
    status.f_namemax = volume_name_size_max;
    fuse_reply_statfs(request, &status);
    co_return Answer();
}

}  // namespace tarn::fuse
