// StoreFile: the file or block device of a store, opened for this process alone.
//
// O_DIRECT where the file system takes it. The lock is flock on the open file description: it goes with the process,
// however that ends.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tiers/nvme/device/block_device.hpp"
#include "utils/result.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class StoreFile final : public BlockDevice {
  public:
    StoreFile() = default;

    // Errors: not_found, refused (permissions, read-only), busy (another process has it), invalid (neither file nor
    // block device), unsupported (a block device with sectors beyond 4 KiB), io.
    static Result<StoreFile> open(const std::string& path) { return open_with(path, O_RDWR); }
    // The same, and makes the file when there is none.
    static Result<StoreFile> create(const std::string& path) { return open_with(path, O_RDWR | O_CREAT); }
    // For the tools: it may be on a read-only file system, and nothing is ever written.
    static Result<StoreFile> open_read_only(const std::string& path) { return open_with(path, O_RDONLY); }
    // Whether nothing is stored there: all data of a file is zeros, or the first 16 MiB and the last 1 MiB of a device.
    // Errors: io.
    Result<bool> is_blank();
    // Gives a file the size, and has its file system set the space aside; a device must be as large. Errors: no_space,
    // invalid, io.
    Result<> set_size(uint64_t size_bytes);

    // From here on reads are polled if the device has queues for that; true: they are. The first one that the kernel
    // refuses ends it: only then it shows that a file system, or a device mapper's device, cannot. root: where /sys is.
    bool begin_polling(Loop& loop, const std::string& root = "");

    uint64_t size_bytes() const override { return size_bytes_; }
    bool direct() const override { return direct_; }
    bool polls_reads() const override { return polls_reads_->load(std::memory_order_relaxed); }
    bool made() const { return made_; }  // create() made a new file
    uint64_t atomic_write_max() const override { return atomic_write_max_; }
    // What the device prefers to be given at a time, bytes; 0: it does not say.
    uint64_t optimal_io_size() const { return optimal_io_size_; }

    Task<Result<>> read(Loop& loop, std::span<const iovec> into, uint64_t offset_bytes) override;
    Task<Result<>> write(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) override;
    Task<Result<>> flush(Loop& loop) override;
    Task<Result<>> write_through(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) override;
    Task<Result<>> write_atomic(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) override;

    Result<> read_now(std::span<std::byte> into, uint64_t offset_bytes) override;
    Result<> write_now(std::span<const std::byte> from, uint64_t offset_bytes) override;
    Result<> flush_now() override;

  private:
    static Result<StoreFile> open_with(const std::string& path, int flags);
    Result<> open_and_lock(const std::string& path, int flags);
    Result<> take_size();
    Task<Result<size_t>> read_some(Loop& loop, std::span<const iovec> into, uint64_t offset_bytes);
    Task<Result<>> writev(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes, int flags);
    std::string queue_attribute(const std::string& root, const std::string& name) const;
    Result<bool> reads_as_zeros(uint64_t begin, uint64_t end, std::span<std::byte> scratch);

    UniqueFd fd_;
    uint64_t size_bytes_ = 0;
    bool direct_ = true;
    std::unique_ptr<std::atomic<bool>> polls_reads_ = std::make_unique<std::atomic<bool>>(false);  // the file moves
    bool block_device_ = false;
    uint64_t optimal_io_size_ = 0;
    uint64_t atomic_write_max_ = 0;
    bool made_ = false;
};

}  // namespace tarn
