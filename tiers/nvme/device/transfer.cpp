#include "tiers/nvme/device/transfer.hpp"

#include <span>

#include "utils/sync.hpp"

namespace tarn {

struct Transfer::Batch {
    Gate gate;
    Semaphore places{operations_in_flight_max};
    Result<> result;
};

void Transfer::add(uint64_t offset_bytes, std::byte* bytes, size_t size_bytes) {
    const bool follows = direction_ != Direction::write_atomic && !operations_.empty() &&
                         operations_.back().piece_count < pieces_per_operation_max &&
                         operations_.back().offset_bytes + operations_.back().size_bytes == offset_bytes;
    if (!follows)
        operations_.push_back(
            {.offset_bytes = offset_bytes, .size_bytes = 0, .first_piece = pieces_.size(), .piece_count = 0});
    pieces_.push_back({.iov_base = bytes, .iov_len = size_bytes});
    operations_.back().size_bytes += size_bytes;
    ++operations_.back().piece_count;
    if (direction_ == Direction::write_atomic) join_whole();
}

// The last two operations become one as long as that is one that the device writes whole: as a binary counter carries.
void Transfer::join_whole() {
    while (operations_.size() > 1) {
        Operation& first = operations_[operations_.size() - 2];
        const Operation& second = operations_.back();
        iovec& bytes = pieces_[first.first_piece];
        const bool adjacent = first.offset_bytes + first.size_bytes == second.offset_bytes &&
                              static_cast<std::byte*>(bytes.iov_base) + bytes.iov_len == pieces_.back().iov_base;
        const uint64_t size_bytes = first.size_bytes + second.size_bytes;
        if (!adjacent || first.size_bytes != second.size_bytes || first.offset_bytes % size_bytes != 0 ||
            size_bytes > atomic_write_max_)
            return;
        bytes.iov_len = first.size_bytes = size_bytes;
        pieces_.pop_back();
        operations_.pop_back();
    }
}

Task<Result<>> Transfer::run_one(Loop& loop, BlockDevice& device, const Operation& operation) const {
    const std::span pieces = std::span(pieces_).subspan(operation.first_piece, operation.piece_count);
    if (direction_ == Direction::read) return device.read(loop, pieces, operation.offset_bytes);
    if (direction_ == Direction::write) return device.write(loop, pieces, operation.offset_bytes);
    if (direction_ == Direction::write_atomic) return device.write_atomic(loop, pieces, operation.offset_bytes);
    return device.write_through(loop, pieces, operation.offset_bytes);
}

Task<> Transfer::run_in_batch(const Transfer& transfer, Loop& loop, BlockDevice& device, const Operation& operation,
                              Batch& batch) {
    const Result<> result = co_await transfer.run_one(loop, device, operation);
    if (!result && batch.result) batch.result = result;
    batch.places.release();
}

Task<Result<>> Transfer::run(Loop& loop, BlockDevice& device) {
    if (operations_.empty()) co_return Result<>{};
    if (operations_.size() == 1) co_return co_await run_one(loop, device, operations_.front());
    Batch batch;
    for (const Operation& operation : operations_) {
        co_await batch.places.acquire();
        batch.gate.spawn(run_in_batch(*this, loop, device, operation, batch));
    }
    co_await batch.gate.close();
    co_return batch.result;
}

}  // namespace tarn
