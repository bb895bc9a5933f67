#include "tiers/nvme/device/store_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "tiers/page.hpp"
#include "utils/file_text.hpp"
#include "utils/log.hpp"
#include "utils/mapping.hpp"

namespace tarn {

namespace {

std::unexpected<Error> fail_kind() {
    return fail(Errc::invalid, 0, "store.open: neither a regular file nor a block device");
}

std::unexpected<Error> fail_open(int error) {
    switch (error) {
        case ENOENT: return fail(Errc::not_found, error, "store.open");
        case EACCES:
        case EPERM:
        case EROFS: return fail(Errc::refused, error, "store.open");
        case EBUSY: return fail(Errc::busy, error, "store.open: the device is mounted or in use");
        case EISDIR:
        case ENXIO: return fail_kind();
        default: return fail(Errc::io, error, "store.open");
    }
}

// What is_blank looks at of a block device, where signatures lie; and how much it reads at a time.
constexpr uint64_t blank_front_bytes = uint64_t{16} << 20;
constexpr uint64_t blank_back_bytes = uint64_t{1} << 20;
constexpr uint64_t blank_chunk_bytes = uint64_t{1} << 20;

// Of Linux 6.11, newer than the headers that this may be built with.
constexpr int rwf_atomic = 0x40;
constexpr unsigned statx_write_atomic = 0x10000;

// What the device and the file system above it promise together; kernels before 6.11 say nothing.
uint64_t atomic_write_max_of(int fd) {
    constexpr unsigned mask = STATX_BASIC_STATS | statx_write_atomic;
    struct Fields {
        std::byte others[168];
        uint32_t unit_min_bytes;
        uint32_t unit_max_bytes;
        uint64_t reserved[10];
    } fields{};
    static_assert(sizeof(Fields) == 256 && sizeof(struct statx) == 256);
    struct statx status{};
    if (::statx(fd, "", AT_EMPTY_PATH, mask, &status) != 0 || (status.stx_mask & statx_write_atomic) == 0) return 0;
    std::memcpy(&fields, &status, sizeof fields);
    // An extent of a file may end between two of its blocks, so an atomic write must not span two.
    const uint32_t most =
        S_ISREG(status.stx_mode) ? std::min(fields.unit_max_bytes, status.stx_blksize) : fields.unit_max_bytes;
    return fields.unit_min_bytes <= page_size && most >= page_size ? std::bit_floor(most) : 0;
}

size_t size_of(std::span<const iovec> pieces) {
    size_t size = 0;
    for (const iovec& piece : pieces) size += piece.iov_len;
    return size;
}

}  // namespace

Result<> StoreFile::open_and_lock(const std::string& path, int flags) {
    // O_NONBLOCK: a FIFO must not make us wait for its other end. O_EXCL on a device: not while it is mounted; beside
    // O_CREAT it would mean that the device must not exist.
    struct stat status{};
    const bool exists = ::stat(path.c_str(), &status) == 0;
    // Not even opened: of a character device that alone may have effects.
    if (exists && !S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) return fail_kind();
    const bool device = exists && S_ISBLK(status.st_mode);
    const int all_flags = (device ? (flags & ~O_CREAT) | O_EXCL : flags) | O_CLOEXEC | O_NONBLOCK;
    fd_ = UniqueFd(::open(path.c_str(), all_flags | O_DIRECT, 0600));
    if (!fd_ && errno == EINVAL) {
        direct_ = false;
        fd_ = UniqueFd(::open(path.c_str(), all_flags, 0600));
    }
    if (!fd_) return fail_open(errno);
    made_ = !exists;
    if (::fstat(fd_.get(), &status) != 0) return fail(Errc::io, errno, "store.open");
    if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) return fail_kind();
    block_device_ = S_ISBLK(status.st_mode);
    if (direct_) atomic_write_max_ = atomic_write_max_of(fd_.get());
    if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) return fail(Errc::busy, 0, "store.open: in use by another process");
        return fail(Errc::io, errno, "store.open: flock");
    }
    return take_size();
}

Result<> StoreFile::take_size() {
    if (!block_device_) {
        struct stat status{};
        if (::fstat(fd_.get(), &status) != 0) return fail(Errc::io, errno, "store.size");
        size_bytes_ = static_cast<uint64_t>(status.st_size);
        return {};
    }
    int sector_size_bytes = 0;
    if (::ioctl(fd_.get(), BLKGETSIZE64, &size_bytes_) != 0 || ::ioctl(fd_.get(), BLKSSZGET, &sector_size_bytes) != 0)
        return fail(Errc::io, errno, "store.size");
    unsigned optimal_bytes = 0;
    if (::ioctl(fd_.get(), BLKIOOPT, &optimal_bytes) == 0) optimal_io_size_ = optimal_bytes;
    // Sectors of 512 bytes and of 4096 (4Kn) are alike here: all reads and writes are of whole pages.
    if (static_cast<size_t>(sector_size_bytes) > page_size)
        return fail(Errc::unsupported, 0, "store.open: the device's sectors are larger than 4 KiB");
    return {};
}

Result<StoreFile> StoreFile::open_with(const std::string& path, int flags) {
    StoreFile file;
    TRY_VOID(file.open_and_lock(path, flags));
    return file;
}

// The last part of a page is read too: a read at the end of the file comes back short, also with O_DIRECT.
Result<bool> StoreFile::reads_as_zeros(uint64_t begin, uint64_t end, std::span<std::byte> scratch) {
    for (uint64_t at = begin / page_size * page_size; at < end;) {
        const uint64_t wanted = std::min<uint64_t>(scratch.size(), round_up(end - at, page_size));
        const ssize_t count = ::pread(fd_.get(), scratch.data(), wanted, static_cast<off_t>(at));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail(Errc::io, errno, "store.read");
        const std::span<const std::byte> bytes = scratch.first(static_cast<size_t>(count));
        if (!std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; })) return false;
        at += bytes.size();
        if (at >= end) break;
        if (bytes.size() < page_size) return fail(Errc::io, 0, "store.read: short");
        at = at / page_size * page_size;
    }
    return true;
}

Result<bool> StoreFile::is_blank() {
    TRY(const Mapping mapping, Mapping::create(blank_chunk_bytes));
    const std::span<std::byte> scratch = mapping.bytes();
    if (block_device_) {
        TRY(const bool front, reads_as_zeros(0, std::min(size_bytes_, blank_front_bytes), scratch));
        if (!front) return false;
        return reads_as_zeros(size_bytes_ - std::min(size_bytes_, blank_back_bytes), size_bytes_, scratch);
    }
    for (off_t at = 0;;) {
        const off_t data = ::lseek(fd_.get(), at, SEEK_DATA);
        if (data < 0 && errno == ENXIO) return true;
        const off_t hole = data < 0 ? data : ::lseek(fd_.get(), data, SEEK_HOLE);
        if (hole < 0) return fail(Errc::io, errno, "store.format: SEEK_DATA");
        TRY(const bool zeros, reads_as_zeros(static_cast<uint64_t>(data), static_cast<uint64_t>(hole), scratch));
        if (!zeros) return false;
        at = hole;
    }
}

Result<> StoreFile::set_size(uint64_t size_bytes) {
    if (block_device_) {
        if (size_bytes > size_bytes_) return fail(Errc::invalid, 0, "store.format: the device is smaller than that");
        return {};
    }
    if (size_bytes > INT64_MAX) return fail(Errc::invalid, 0, "store.format: size out of range");
    // Thin volumes, but not a thin store: what was accepted must not meet a full file system later.
    if (::fallocate(fd_.get(), 0, 0, static_cast<off_t>(size_bytes)) != 0) {
        if (errno == ENOSPC || errno == EDQUOT) return fail(Errc::no_space, errno, "store.format");
        if (errno == EFBIG) return fail(Errc::invalid, errno, "store.format: larger than the file system's files");
        if (errno != EOPNOTSUPP) return fail(Errc::io, errno, "store.format: fallocate");
    }
    if (::ftruncate(fd_.get(), static_cast<off_t>(size_bytes)) != 0)
        return fail(Errc::io, errno, "store.format: ftruncate");
    return take_size();
}

// Of the device that the file is on, or is.
std::string StoreFile::queue_attribute(const std::string& root, const std::string& name) const {
    struct stat status{};
    if (::fstat(fd_.get(), &status) != 0) return "";
    const dev_t device = block_device_ ? status.st_rdev : status.st_dev;
    const std::string directory = fmt::format("{}/sys/dev/block/{}:{}", root, major(device), minor(device));
    const std::string own = text_of(directory + "/queue/" + name);
    return own.empty() ? text_of(directory + "/../queue/" + name) : own;  // a partition has its disk's queue
}

bool StoreFile::begin_polling(Loop& loop, const std::string& root) {
    *polls_reads_ = direct_ && queue_attribute(root, "io_poll").starts_with('1') && loop.polls();
    return polls_reads();
}

Task<Result<size_t>> StoreFile::read_some(Loop& loop, std::span<const iovec> into, uint64_t offset_bytes) {
    if (polls_reads() && loop.polls()) {
        const Result<size_t> moved_bytes = co_await loop.readv_polled(fd_.get(), into, offset_bytes);
        const int refused = moved_bytes ? 0 : moved_bytes.error().sys_errno;
        if (refused != EOPNOTSUPP && refused != EAGAIN) co_return moved_bytes;
        if (refused == EOPNOTSUPP && polls_reads_->exchange(false))
            log::info("store: its reads cannot be polled; they wait for interrupts");
    }
    if (into.size() != 1) co_return co_await loop.readv(fd_.get(), into, offset_bytes);
    // A single piece may lie in memory that is registered with the ring.
    const std::span bytes(static_cast<std::byte*>(into[0].iov_base), into[0].iov_len);
    co_return co_await loop.read(fd_.get(), bytes, offset_bytes);
}

// The device is as large as its superblock says: a short operation is a failed one.
Task<Result<>> StoreFile::read(Loop& loop, std::span<const iovec> into, uint64_t offset_bytes) {
    CO_TRY(const size_t moved_bytes, co_await read_some(loop, into, offset_bytes));
    if (moved_bytes != size_of(into)) co_return fail(Errc::io, 0, "store.read: short");
    co_return Result<>{};
}

Task<Result<>> StoreFile::write(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) {
    if (from.size() != 1) co_return co_await writev(loop, from, offset_bytes, 0);
    const std::span bytes(static_cast<const std::byte*>(from[0].iov_base), from[0].iov_len);
    CO_TRY(const size_t moved_bytes, co_await loop.write(fd_.get(), bytes, offset_bytes));
    if (moved_bytes != bytes.size()) co_return fail(Errc::io, ENOSPC, "store.write: short");
    co_return Result<>{};
}

Task<Result<>> StoreFile::writev(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes, int flags) {
    CO_TRY(const size_t moved_bytes, co_await loop.writev(fd_.get(), from, offset_bytes, flags));
    if (moved_bytes != size_of(from)) co_return fail(Errc::io, ENOSPC, "store.write: short");
    co_return Result<>{};
}

Task<Result<>> StoreFile::flush(Loop& loop) {
    CO_TRY_VOID(co_await loop.fdatasync(fd_.get()));
    co_return Result<>{};
}

// One operation where write and fdatasync are two, and no thread of io_uring's own that waits for the device. The
// kernel flushes the device only if that has no writes that are durable by themselves (FUA).
Task<Result<>> StoreFile::write_through(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) {
    return writev(loop, from, offset_bytes, RWF_DSYNC);
}

Task<Result<>> StoreFile::write_atomic(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) {
    return writev(loop, from, offset_bytes, rwf_atomic);
}

Result<> StoreFile::read_now(std::span<std::byte> into, uint64_t offset_bytes) {
    while (!into.empty()) {
        const ssize_t count = ::pread(fd_.get(), into.data(), into.size(), static_cast<off_t>(offset_bytes));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail(Errc::io, errno, "store.read");
        if (count == 0) return fail(Errc::corrupt, 0, "store.read: the device is shorter than the store");
        into = into.subspan(static_cast<size_t>(count));
        offset_bytes += static_cast<uint64_t>(count);
    }
    return {};
}

Result<> StoreFile::write_now(std::span<const std::byte> from, uint64_t offset_bytes) {
    while (!from.empty()) {
        const ssize_t count = ::pwrite(fd_.get(), from.data(), from.size(), static_cast<off_t>(offset_bytes));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail(errno == ENOSPC ? Errc::no_space : Errc::io, errno, "store.write");
        from = from.subspan(static_cast<size_t>(count));
        offset_bytes += static_cast<uint64_t>(count);
    }
    return {};
}

Result<> StoreFile::flush_now() {
    if (::fsync(fd_.get()) != 0) return fail(Errc::io, errno, "store.sync");
    return {};
}

}  // namespace tarn
