// What libfuse calls with each request: copies what the request's memory holds, and starts the operation's task.
#include <cerrno>

#include "frontends/fuse/mount.hpp"

namespace tarn::fuse {

namespace {

constexpr unsigned background_max = 512;  // requests of readahead and asynchronous I/O that the kernel has in flight

Mount& mount_of(fuse_req_t request) {
    return *static_cast<Mount*>(fuse_req_userdata(request));
}
FileSystem& files_of(fuse_req_t request) {
    return mount_of(request).file_system();
}
void start(fuse_req_t request, Task<Answer> task) {
    mount_of(request).channel_here().start(request, std::move(task));
}
OpenFile* file_of(const fuse_file_info* info) {
    return info ? reinterpret_cast<OpenFile*>(info->fh) : nullptr;
}

void on_init(void*, fuse_conn_info* connection) {
    // The kernel may cache nothing, decide nothing about times, and keep its own idea of set-user-id bits.
    connection->want &= ~static_cast<unsigned>(FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_AUTO_INVAL_DATA |
                                               FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_ATOMIC_O_TRUNC |
                                               FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
    connection->want |= connection->capable &
                        static_cast<unsigned>(FUSE_CAP_ASYNC_DIO | FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS);
    connection->max_write = transfer_size_max;
    connection->max_read = transfer_size_max;
    connection->max_background = background_max;
    connection->congestion_threshold = background_max / 4 * 3;
    connection->time_gran = 1;
}

void on_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
    start(request, files_of(request).lookup(request, parent, name));
}
void on_forget(fuse_req_t request, fuse_ino_t id, uint64_t lookups) {
    start(request, files_of(request).forget(request, id, lookups));
}
void on_getattr(fuse_req_t request, fuse_ino_t id, fuse_file_info* info) {
    start(request, files_of(request).get_attributes(request, id, file_of(info)));
}
void on_setattr(fuse_req_t request, fuse_ino_t id, struct stat* attributes, int which, fuse_file_info* info) {
    start(request, files_of(request).set_attributes(request, id, *attributes, which, file_of(info)));
}
void on_create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* info) {
    start(request, files_of(request).create(request, parent, name, mode, *info));
}
void on_unlink(fuse_req_t request, fuse_ino_t parent, const char* name) {
    start(request, files_of(request).unlink(parent, name));
}
void on_open(fuse_req_t request, fuse_ino_t id, fuse_file_info*) {
    start(request, files_of(request).open(request, id));
}
void on_release(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
    start(request, files_of(request).release(file_of(info)));
}
void on_read(fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info* info) {
    start(request, files_of(request).read(request, file_of(info), static_cast<uint64_t>(offset), size));
}
void on_write(fuse_req_t request, fuse_ino_t, const char* data, size_t size, off_t offset, fuse_file_info* info) {
    Channel& channel = mount_of(request).channel_here();
    const auto bytes = std::as_bytes(std::span(data, size));
    channel.start(request, files_of(request).write(request, channel.keep_bytes(), file_of(info),
                                                   static_cast<uint64_t>(offset), bytes, info->flags));
}
void on_fsync(fuse_req_t request, fuse_ino_t, int, fuse_file_info* info) {
    start(request, files_of(request).flush(file_of(info)));
}
void on_fallocate(fuse_req_t request, fuse_ino_t, int mode, off_t offset, off_t size, fuse_file_info* info) {
    start(request,
          files_of(request).allocate(file_of(info), mode, static_cast<uint64_t>(offset), static_cast<uint64_t>(size)));
}
void on_lseek(fuse_req_t request, fuse_ino_t, off_t offset, int whence, fuse_file_info* info) {
    start(request, files_of(request).seek(request, file_of(info), static_cast<uint64_t>(offset), whence));
}
void on_opendir(fuse_req_t request, fuse_ino_t id, fuse_file_info* info) {
    start(request, files_of(request).open_directory(request, id, *info));
}
void on_readdir(fuse_req_t request, fuse_ino_t, size_t size, off_t cursor, fuse_file_info* info) {
    start(request, files_of(request).read_directory(request, size, cursor, *info));
}
void on_releasedir(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
    start(request, files_of(request).release_directory(*info));
}
void on_fsyncdir(fuse_req_t request, fuse_ino_t, int, fuse_file_info*) {
    start(request, files_of(request).flush_everything());
}
void on_statfs(fuse_req_t request, fuse_ino_t) {
    start(request, files_of(request).report_space(request));
}

// Whatever the request says.
template <int error_number, class... Said>
void refuse(fuse_req_t request, Said...) {
    fuse_reply_err(request, error_number);
}

}  // namespace

const fuse_lowlevel_ops& operations() {
    static const fuse_lowlevel_ops table = [] {
        fuse_lowlevel_ops made{};
        made.init = on_init;
        made.lookup = on_lookup;
        made.forget = on_forget;
        made.getattr = on_getattr;
        made.setattr = on_setattr;
        made.create = on_create;
        made.unlink = on_unlink;
        made.open = on_open;
        made.release = on_release;
        made.read = on_read;
        made.write = on_write;
        made.fsync = on_fsync;
        made.fallocate = on_fallocate;
        made.lseek = on_lseek;
        made.opendir = on_opendir;
        made.readdir = on_readdir;
        made.releasedir = on_releasedir;
        made.fsyncdir = on_fsyncdir;
        made.statfs = on_statfs;
        // Without these three the kernel would grant locks that hold on this host only.
        made.getlk = refuse<ENOLCK>;
        made.setlk = refuse<ENOLCK>;
        made.flock = refuse<ENOLCK>;
        // Volumes have one name, and directories are only parts of names.
        made.mkdir = refuse<EPERM>;
        made.rmdir = refuse<EPERM>;
        made.mknod = refuse<EPERM>;
        made.symlink = refuse<EPERM>;
        made.link = refuse<EPERM>;
        made.rename = refuse<ENOTSUP>;
        return made;
    }();
    return table;
}

}  // namespace tarn::fuse
