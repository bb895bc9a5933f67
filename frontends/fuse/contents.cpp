#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fuse.h>
#include <unistd.h>

#include <algorithm>

#include "frontends/fuse/file_system.hpp"
#include "frontends/fuse/runs.hpp"
#include "utils/with_timeout.hpp"

namespace tarn::fuse {

namespace {

// As fuse_reply_open, and with the flag that libfuse 3.14 does not know: several writers of one file need not wait
// for each other in the kernel. Kernels before 6.2 ignore it.
int reply_open(fuse_req_t request, uint64_t handle) {
    fuse_open_out reply{};
    reply.fh = handle;
    reply.open_flags = FOPEN_DIRECT_IO;
#ifdef FOPEN_PARALLEL_DIRECT_WRITES
    reply.open_flags |= FOPEN_PARALLEL_DIRECT_WRITES;
#endif
    return fuse_reply_buf(request, reinterpret_cast<const char*>(&reply), sizeof reply);
}

bool past_limit(uint64_t offset_bytes, uint64_t size_bytes) {
    return offset_bytes > volume_size_max || size_bytes > volume_size_max - offset_bytes;
}

size_t readable_bytes(const Attributes& attributes, uint64_t offset_bytes, size_t size_bytes) {
    const uint64_t end = attributes.size_bytes;
    return static_cast<size_t>(std::min<uint64_t>(size_bytes, offset_bytes < end ? end - offset_bytes : 0));
}

// Whether the bytes that were read are those of one moment: the file was not cut meanwhile, and if they end at its end,
// the end has not moved.
bool is_one_moment(const std::optional<Attributes>& after, const Attributes& before, uint64_t read_end_bytes) {
    return after && after->truncations == before.truncations &&
           (read_end_bytes < before.size_bytes || after->size_bytes == before.size_bytes);
}

// Answers from frames, if all are here: the pins last as long as the system call that sends them. Not if the
// file is another one since its size was looked at. The volume is the caller's own: once answered, the client may close
// the file on another shard before the pins are gone.
bool reply_pinned(fuse_req_t request, std::shared_ptr<Volume> volume, uint64_t offset_bytes, size_t size_bytes,
                  const Attributes& before) {
    thread_local std::vector<Pin> pins;  // kept for their memory only
    thread_local std::vector<iovec> vectors;
    pins.clear();
    vectors.clear();
    if (!volume->try_pin(offset_bytes, static_cast<uint32_t>(size_bytes), pins)) return false;
    const bool is_whole = is_one_moment(volume->try_attributes(), before, offset_bytes + size_bytes);
    if (is_whole) {
        for (const Pin& pin : pins) vectors.push_back({const_cast<std::byte*>(pin.bytes), pin.size_bytes});
        fuse_reply_iov(request, vectors.data(), static_cast<int>(vectors.size()));
    }
    volume->unpin(pins);
    return is_whole;
}

}  // namespace

// An exclusive volume is opened as its one host's, even to read: nobody else could tell us what its writer changes.
Task<Result<std::shared_ptr<Volume>>> FileSystem::open_volume(VolumeEntry entry) {
    CO_TRY(std::shared_ptr<Volume> volume, co_await interruptible(volumes_.open(entry.name, Access::write)));
    if (volume->id() != entry.id) co_return fail(Errc::not_found, 0, "fuse.open: another volume has the name");
    co_return volume;
}

// One that has lost its name can be opened once more as long as somebody has it open here, by /proc/PID/fd, say.
Task<Result<std::shared_ptr<Volume>>> FileSystem::open_node(NodeId id) {
    Result<VolumeEntry> entry = co_await entry_of(id);
    if (entry) co_return co_await open_volume(std::move(*entry));
    std::shared_ptr<Volume> open = open_here(id);
    if (open && entry.error().code == Errc::not_found) co_return open;
    co_return fail(entry.error());
}

Task<Answer> FileSystem::open(fuse_req_t request, NodeId id) {
    CO_TRY(std::shared_ptr<Volume> volume, co_await open_node(id));
    OpenFile* const file = files_.add({.volume = std::move(volume), .opener = fuse_req_ctx(request)->pid});
    if (reply_open(request, reinterpret_cast<uint64_t>(file)) != 0) files_.remove(file);
    co_return Answer();
}

Task<Answer> FileSystem::release(OpenFile* file) {
    files_.remove(file);
    co_return 0;
}

Task<Answer> FileSystem::read(fuse_req_t request, OpenFile* file, uint64_t offset_bytes, size_t size_bytes) {
    Volume& volume = *file->volume;
    size_bytes = std::min(size_bytes, transfer_size_max);
    const std::optional<Attributes> now = volume.try_attributes();
    if (now) {
        const size_t count = readable_bytes(*now, offset_bytes, size_bytes);
        if (count == 0) {
            fuse_reply_buf(request, nullptr, 0);
            co_return Answer();
        }
        if (reply_pinned(request, file->volume, offset_bytes, count, *now)) co_return Answer();
    }
    const auto bytes = std::make_unique_for_overwrite<std::byte[]>(size_bytes);
    CO_TRY(const size_t read, co_await read_whole(volume, offset_bytes, {bytes.get(), size_bytes}));
    fuse_reply_buf(request, reinterpret_cast<const char*>(bytes.get()), read);
    co_return Answer();
}

// Again, if the file has another size meanwhile: that of before does not go with the bytes of after. Who reads at the
// end of a file that grows all the time gets what there was in the end.
Task<Result<size_t>> FileSystem::read_whole(Volume& volume, uint64_t offset_bytes, std::span<std::byte> into) {
    constexpr unsigned tries_max = 32;
    CO_TRY(Attributes now, co_await volume.attributes());
    for (unsigned tries = 1;; ++tries) {
        const Attributes before = now;
        const size_t count = readable_bytes(before, offset_bytes, into.size());
        if (count == 0) co_return count;
        const std::span<std::byte> wanted = into.first(count);
        if (!volume.try_read(offset_bytes, wanted)) CO_TRY_VOID(co_await volume.read(offset_bytes, wanted));
        CO_TRY(now, co_await volume.attributes());
        if (is_one_moment(now, before, offset_bytes + count)) co_return count;
        if (tries >= tries_max && now.truncations == before.truncations) co_return count;
    }
}

Task<Answer> FileSystem::write(fuse_req_t request, RequestBytes, OpenFile* file, uint64_t offset_bytes,
                               std::span<const std::byte> bytes, int flags) {
    Volume& volume = *file->volume;
    const bool append = (flags & O_APPEND) != 0;
    if (!append && past_limit(offset_bytes, bytes.size())) co_return EFBIG;
    if (append) {
        // The kernel's offset is where the end was for this host.
        CO_TRY(offset_bytes, co_await volume.append(bytes));
    } else {
        CO_TRY_VOID(co_await volume.write_growing(offset_bytes, bytes));
    }
    // What was appended in several pieces may have another host's between them.
    const bool is_one_piece = !append || bytes.size() <= append_at_once;
    if ((flags & (O_SYNC | O_DSYNC)) != 0)
        CO_TRY_VOID(is_one_piece ? co_await volume.flush_range(offset_bytes, bytes.size(), true)
                                 : co_await volume.flush());
    fuse_reply_write(request, bytes.size());
    co_return Answer();
}

Task<Answer> FileSystem::flush(OpenFile* file) {
    co_return to_errno(co_await file->volume->flush());
}

Task<Answer> FileSystem::allocate(OpenFile* file, int mode, uint64_t offset_bytes, uint64_t size_bytes) {
    Volume& volume = *file->volume;
    const bool keep_size = (mode & FALLOC_FL_KEEP_SIZE) != 0;
    const int action = mode & ~FALLOC_FL_KEEP_SIZE;
    const bool punch = action == FALLOC_FL_PUNCH_HOLE && keep_size;
    const bool zero = action == FALLOC_FL_ZERO_RANGE;
    const bool grow = action == 0 && !keep_size;  // space is taken when it is written, never ahead
    if (!punch && !zero && !grow) co_return EOPNOTSUPP;
    if (past_limit(offset_bytes, size_bytes)) co_return EFBIG;
    if (punch || zero) {
        // Past the end there is nothing to zero, and must be nothing stored.
        CO_TRY(const Attributes attributes, co_await volume.attributes());
        const uint64_t end = attributes.size_bytes;
        if (offset_bytes < end)
            CO_TRY_VOID(co_await volume.zero(offset_bytes, std::min(size_bytes, end - offset_bytes), zero));
    }
    // An empty write at the new end: it never shrinks a file that another host extends meanwhile.
    if (!keep_size) CO_TRY_VOID(co_await volume.write_growing(offset_bytes + size_bytes, {}));
    co_return 0;
}

Task<Answer> FileSystem::seek(fuse_req_t request, OpenFile* file, uint64_t offset_bytes, int whence) {
    if (whence != SEEK_HOLE && whence != SEEK_DATA) co_return EINVAL;
    const Result<uint64_t> found = co_await find_run(*file->volume, offset_bytes, whence == SEEK_HOLE);
    if (!found) co_return found.error().sys_errno == ENXIO ? ENXIO : to_errno(found.error());
    fuse_reply_lseek(request, static_cast<off_t>(*found));
    co_return Answer();
}

}  // namespace tarn::fuse
