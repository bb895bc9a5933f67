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
        made.lookup = [](fuse_req_t request, fuse_ino_t parent, const char* name) {
            start(request, files_of(request).lookup(request, parent, name));
        };
        made.forget = [](fuse_req_t request, fuse_ino_t id, uint64_t lookups) {
            start(request, files_of(request).forget(request, id, lookups));
        };
        made.getattr = [](fuse_req_t request, fuse_ino_t id, fuse_file_info* info) {
            start(request, files_of(request).get_attributes(request, id, file_of(info)));
        };
        made.setattr = [](fuse_req_t request, fuse_ino_t id, struct stat* attributes, int which, fuse_file_info* info) {
            start(request, files_of(request).set_attributes(request, id, *attributes, which, file_of(info)));
        };
        made.create = [](fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* info) {
            start(request, files_of(request).create(request, parent, name, mode, *info));
        };
        made.unlink = [](fuse_req_t request, fuse_ino_t parent, const char* name) {
            start(request, files_of(request).unlink(parent, name));
        };
        made.open = [](fuse_req_t request, fuse_ino_t id, fuse_file_info*) {
            start(request, files_of(request).open(request, id));
        };
        made.release = [](fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
            start(request, files_of(request).release(file_of(info)));
        };
        made.read = [](fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info* info) {
            start(request, files_of(request).read(request, file_of(info), static_cast<uint64_t>(offset), size));
        };
        made.write = [](fuse_req_t request, fuse_ino_t, const char* data, size_t size, off_t offset,
                        fuse_file_info* info) {
            Channel& channel = mount_of(request).channel_here();
            const auto bytes = std::as_bytes(std::span(data, size));
            channel.start(request, files_of(request).write(request, channel.keep_bytes(), file_of(info),
                                                           static_cast<uint64_t>(offset), bytes, info->flags));
        };
        made.fsync = [](fuse_req_t request, fuse_ino_t, int, fuse_file_info* info) {
            start(request, files_of(request).flush(file_of(info)));
        };
        made.fallocate = [](fuse_req_t request, fuse_ino_t, int mode, off_t offset, off_t size, fuse_file_info* info) {
            start(request, files_of(request).allocate(file_of(info), mode, static_cast<uint64_t>(offset),
                                                      static_cast<uint64_t>(size)));
        };
        made.lseek = [](fuse_req_t request, fuse_ino_t, off_t offset, int whence, fuse_file_info* info) {
            start(request, files_of(request).seek(request, file_of(info), static_cast<uint64_t>(offset), whence));
        };
        made.opendir = [](fuse_req_t request, fuse_ino_t id, fuse_file_info* info) {
            start(request, files_of(request).open_directory(request, id, *info));
        };
        made.readdir = [](fuse_req_t request, fuse_ino_t, size_t size, off_t cursor, fuse_file_info* info) {
            start(request, files_of(request).read_directory(request, size, cursor, *info));
        };
        made.releasedir = [](fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
            start(request, files_of(request).release_directory(*info));
        };
        made.fsyncdir = [](fuse_req_t request, fuse_ino_t, int, fuse_file_info*) {
            start(request, files_of(request).flush_everything());
        };
        made.statfs = [](fuse_req_t request, fuse_ino_t) { start(request, files_of(request).report_space(request)); };
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
