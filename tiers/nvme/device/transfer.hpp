// Transfer: gathers page-sized pieces into few large device operations and runs them side by side.
//
// Pieces that follow each other on the device become one vectored read or write. The buffers are the callers' own
// and stay put until run() returned.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tiers/nvme/device/block_device.hpp"
#include "utils/loop.hpp"
#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

class Transfer {
  public:
    static constexpr size_t pieces_per_operation_max = 256;
    static constexpr size_t operations_in_flight_max = 16;

    enum class Direction : uint8_t { read, write, write_through, write_atomic };

    // atomic_write_max: the device's; what is added is page-sized and torn nowhere.
    explicit Transfer(Direction direction, uint64_t atomic_write_max = 0)
        : direction_(direction), atomic_write_max_(atomic_write_max) {}

    void add(uint64_t offset_bytes, std::byte* bytes, size_t size_bytes);
    void add(uint64_t offset_bytes, const std::byte* bytes, size_t size_bytes) {
        add(offset_bytes, const_cast<std::byte*>(bytes), size_bytes);  // iovec knows no const; writes only read it
    }
    bool empty() const { return operations_.empty(); }

    // Runs what was added. The first error wins; all operations have ended when it returns. Errors: io, cancelled.
    Task<Result<>> run(Loop& loop, BlockDevice& device);

  private:
    struct Operation {
        uint64_t offset_bytes;
        size_t size_bytes;
        size_t first_piece;
        size_t piece_count;
    };
    struct Batch;
    void join_whole();
    Task<Result<>> run_one(Loop& loop, BlockDevice& device, const Operation& operation) const;
    static Task<> run_in_batch(const Transfer& transfer, Loop& loop, BlockDevice& device, const Operation& operation,
                               Batch& batch);

    Direction direction_;
    uint64_t atomic_write_max_;
    std::vector<iovec> pieces_;
    std::vector<Operation> operations_;
};

}  // namespace tarn
