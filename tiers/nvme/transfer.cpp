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

Task<Result<>> Transfer::run_one(Loop& loop, int fd, const Operation& operation) const {
    const std::span pieces = std::span(pieces_).subspan(operation.first_piece, operation.piece_count);
    const std::span only(static_cast<std::byte*>(pieces.front().iov_base), pieces.front().iov_len);
    size_t moved_bytes = 0;
    // One piece may lie in memory that the loop has registered; the kernel takes no list of such pieces.
    if (direction_ == Direction::read && pieces.size() == 1) {
        CO_TRY(moved_bytes, co_await loop.read(fd, only, operation.offset_bytes));
    } else if (direction_ == Direction::read) {
        CO_TRY(moved_bytes, co_await loop.readv(fd, pieces, operation.offset_bytes));
    } else if (pieces.size() == 1) {
        CO_TRY(moved_bytes, co_await loop.write(fd, only, operation.offset_bytes));
    } else {
        CO_TRY(moved_bytes, co_await loop.writev(fd, pieces, operation.offset_bytes));
    }
    // The device is as large as its superblock says: a short operation is a failed one.
    if (moved_bytes != operation.size_bytes) co_return fail(Errc::io, 0, "store: short read or write");
    co_return Result<>{};
}

Task<> Transfer::run_in_batch(const Transfer& transfer, Loop& loop, int fd, const Operation& operation, Batch& batch) {
    const Result<> result = co_await transfer.run_one(loop, fd, operation);
    if (!result && batch.result) batch.result = result;
    batch.places.release();
}

Task<Result<>> Transfer::run(Loop& loop, int fd) {
    if (operations_.empty()) co_return Result<>{};
    if (operations_.size() == 1) co_return co_await run_one(loop, fd, operations_.front());
    Batch batch;
    for (const Operation& operation : operations_) {
        co_await batch.places.acquire();
        batch.gate.spawn(run_in_batch(*this, loop, fd, operation, batch));
    }
    co_await batch.gate.close();
    co_return batch.result;
}

}  // namespace tarn
