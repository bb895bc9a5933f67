// BlockDevice: what a store lies on, as the store sees it: reads, writes, and a flush that makes writes durable.
//
// A write that returned is only in the device's cache. A flush that is called later and succeeds makes it durable.
// Until then a power cut may keep or lose each sector of it by itself. After a failed flush nothing is known about the
// writes before it. StoreFile is the real one; the simulator's loses, tears and fails on command.
//
// Offsets, sizes and buffers are multiples of 4 KiB (O_DIRECT). So devices with sectors of 512 bytes and of 4096 (4Kn)
// are alike; StoreFile refuses larger ones. Any shard may call, with its own loop.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "utils/loop.hpp"
#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

class BlockDevice {
  public:
    BlockDevice() = default;
    virtual ~BlockDevice() = default;

    virtual uint64_t size_bytes() const = 0;
    // False: writes pass the cache of a file system.
    virtual bool direct() const = 0;

    // Whether reads ask the device time and again until they are complete, instead of waiting for an interrupt.
    virtual bool polls_reads() const { return false; }

    // All of the pieces, one after the other on the device, or an error. The span itself, too, lives until the end.
    virtual Task<Result<>> read(Loop& loop, std::span<const iovec> into, uint64_t offset_bytes) = 0;
    virtual Task<Result<>> write(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) = 0;
    virtual Task<Result<>> flush(Loop& loop) = 0;
    // As write, but durable when it returns. It makes no other write durable.
    virtual Task<Result<>> write_through(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) {
        CO_TRY_VOID(co_await write(loop, from, offset_bytes));
        co_return co_await flush(loop);
    }

    // The longest write that no power cut tears: a power of two, at least a page. 0: any write may be torn.
    virtual uint64_t atomic_write_max() const { return 0; }
    // As write, but a power cut leaves all of it or nothing. One piece, whose length is a power of two of at most
    // atomic_write_max() and whose offset is a multiple of its length.
    virtual Task<Result<>> write_atomic(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) {
        return write(loop, from, offset_bytes);
    }

    // The same, and the thread waits: for format, start and the tools.
    virtual Result<> read_now(std::span<std::byte> into, uint64_t offset_bytes) = 0;
    virtual Result<> write_now(std::span<const std::byte> from, uint64_t offset_bytes) = 0;
    virtual Result<> flush_now() = 0;

  protected:
    BlockDevice(BlockDevice&&) = default;
    BlockDevice& operator=(BlockDevice&&) = default;
};

}  // namespace tarn
