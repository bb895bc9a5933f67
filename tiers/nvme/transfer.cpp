#include "tiers/nvme/transfer.hpp"

#include <span>

#include "utils/sync.hpp"

namespace tarn {

struct Transfer::Batch {
    Gate gate;
    Semaphore places{operations_in_flight_max};
    Result<> result;
};

void Transfer::add(uint64_t offset_bytes, std::byte* bytes, size_t size_bytes) {
    const bool follows = !operations_.empty() && operations_.back().piece_count < pieces_per_operation_max &&
                         operations_.back().offset_bytes + operations_.back().size_bytes == offset_bytes;
    if (!follows)
        operations_.push_back(
            {.offset_bytes = offset_bytes, .size_bytes = 0, .first_piece = pieces_.size(), .piece_count = 0});
    pieces_.push_back({.iov_base = bytes, .iov_len = size_bytes});
    operations_.back().size_bytes += size_bytes;
    ++operations_.back().piece_count;
}

Task<Result<>> Transfer::run_one(Loop& loop, BlockDevice& device, const Operation& operation) const {
    const std::span pieces = std::span(pieces_).subspan(operation.first_piece, operation.piece_count);
    if (direction_ == Direction::read) return device.read(loop, pieces, operation.offset_bytes);
    if (direction_ == Direction::write) return device.write(loop, pieces, operation.offset_bytes);
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
