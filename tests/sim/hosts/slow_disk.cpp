#include "tests/sim/hosts/slow_disk.hpp"

#include <cerrno>

namespace tarn::hosts_sim {

void SlowDisk::cut_off() {
    if (std::exchange(is_cut_off_, true)) return;
    for (const Write& write : under_way_) {
        uint64_t at = write.offset_bytes;
        if (kernel_.random().chance(50)) continue;
        for (const iovec& piece : write.from) {
            (void)disk_.write_now({static_cast<const std::byte*>(piece.iov_base), piece.iov_len}, at);
            at += piece.iov_len;
        }
    }
}

Task<> SlowDisk::pass_time(Loop& loop) {
    const uint64_t delay_ns =
        kernel_.random().chance(10) ? kernel_.random().below(20'000'000) : kernel_.random().between(10'000, 300'000);
    co_await loop.sleep(std::chrono::nanoseconds(delay_ns));
}

// What is read is what is there at the end: bytes that are older than a write which ended meanwhile are another disk's.
Task<Result<>> SlowDisk::read(Loop& loop, std::span<const iovec> into, uint64_t offset_bytes) {
    co_await pass_time(loop);
    if (is_cut_off_) co_return fail(Errc::io, EIO, "disk.read");
    co_return co_await disk_.read(loop, into, offset_bytes);
}

Task<Result<>> SlowDisk::write(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) {
    const auto own = under_way_.insert(under_way_.end(), {.from = from, .offset_bytes = offset_bytes});
    co_await pass_time(loop);
    under_way_.erase(own);
    if (is_cut_off_) co_return fail(Errc::io, EIO, "disk.write");
    co_return co_await disk_.write(loop, from, offset_bytes);
}

Task<Result<>> SlowDisk::flush(Loop& loop) {
    co_await pass_time(loop);
    if (is_cut_off_) co_return fail(Errc::io, EIO, "disk.flush");
    co_return co_await disk_.flush(loop);
}

}  // namespace tarn::hosts_sim
