// Marks: which pieces of the volumes may have newer bytes in memory than the store, durably and in batches.
#include "tiers/nvme/store.hpp"

namespace tarn {

bool Store::is_marked(PageId page) const {
    const std::lock_guard lock(marks_mutex_);
    return marks_.has(page);
}

Task<Result<>> Store::mark(Loop& loop, std::vector<PageId> pages) {
    bool is_missing = false;
    {
        const std::lock_guard lock(marks_mutex_);
        for (const PageId page : pages) is_missing |= marks_.want(page);
    }
    if (!is_missing) co_return Result<>{};
    const Result<> written = co_await write_marks(loop);
    more_is_marked_.announce();
    co_return written;
}

Task<Result<>> Store::mark_nothing_but(Loop& loop, std::vector<PageId> pages) {
    CO_TRY_VOID(co_await mark(loop, std::move(pages)));
    {
        const std::lock_guard lock(marks_mutex_);
        if (!marks_.is_everything()) co_return Result<>{};
        marks_.end_everything();
    }
    want_superblock();
    const Result<> flushed = co_await flush(loop);
    more_is_marked_.announce();
    co_return flushed;
}

Task<Result<>> Store::write_marks(Loop& loop) {
    return share_round(loop, marks_rounds_, &Store::run_marks_round);
}

// A block is written to the place that does not have its newest contents, so the write that is cut short takes nothing
// with it.
Task<Result<>> Store::run_marks_round(Loop& loop) {
    const PageBuffer buffer = make_page_buffer(mark_block_count);
    Transfer transfer(Transfer::Direction::write_through);
    {
        const std::lock_guard lock(marks_mutex_);
        for (const PieceMarks::Write& write : marks_.begin_round({buffer.get(), marks_size}))
            transfer.add(write.offset_bytes, write.bytes.data(), write.bytes.size());
    }
    if (transfer.empty()) co_return Result<>{};
    CO_TRY_VOID(co_await transfer.run(loop, *device_));
    const std::lock_guard lock(marks_mutex_);
    marks_.end_round();
    co_return Result<>{};
}

std::optional<std::vector<PageId>> Store::marked_pieces() const {
    const std::lock_guard lock(marks_mutex_);
    if (marks_.is_everything()) return std::nullopt;
    return marks_.pieces();
}

bool Store::knows_marks() const {
    const std::lock_guard lock(marks_mutex_);
    return !marks_.is_everything();
}

uint64_t Store::marked_bytes() const {
    const std::lock_guard lock(marks_mutex_);
    return marks_.count() * piece_pages * page_size;
}

bool Store::begin_unmark(PageId page) {
    const std::lock_guard lock(marks_mutex_);
    return marks_.begin_clear(page);
}

void Store::end_unmark(PageId page, bool clears) {
    const std::lock_guard lock(marks_mutex_);
    marks_.end_clear(page, clears);
}

}  // namespace tarn
