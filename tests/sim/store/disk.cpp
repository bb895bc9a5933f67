#include "tests/sim/store/disk.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "utils/assert.hpp"

namespace tarn::store_sim {

namespace {

// Keeps each sector of a write with the given chance in 100.
void write_sectors(Image& image, uint64_t offset, std::span<const std::byte> bytes, unsigned percent, Random& random) {
    for (size_t at = 0; at < bytes.size(); at += sector_size)
        if (random.chance(percent)) image.write(offset + at, bytes.subspan(at, sector_size));
}

// The sectors of a write that a power cut leaves: none, all, its beginning, its end, or any.
void write_part(Image& image, uint64_t offset, std::span<const std::byte> bytes, Random& random) {
    constexpr std::array<unsigned, 3> percents = {10, 50, 90};
    const size_t middle = random.below(bytes.size() / sector_size + 1) * sector_size;
    switch (random.below(10)) {
        case 0:
        case 1:
        case 2: return;
        case 3:
        case 4:
        case 5: return image.write(offset, bytes);
        case 6: return image.write(offset, bytes.first(middle));
        case 7:
        case 8: return image.write(offset + middle, bytes.subspan(middle));
        default: return write_sectors(image, offset, bytes, percents[random.below(percents.size())], random);
    }
}

}  // namespace

void Image::read(uint64_t offset, std::span<std::byte> into) const {
    while (!into.empty()) {
        const uint64_t in_block = offset % page_size;
        const size_t size = std::min<size_t>(into.size(), page_size - in_block);
        if (const auto& block = blocks_[offset / page_size])
            std::memcpy(into.data(), block->data() + in_block, size);
        else
            std::memset(into.data(), 0, size);
        offset += size;
        into = into.subspan(size);
    }
}

void Image::write(uint64_t offset, std::span<const std::byte> from) {
    while (!from.empty()) {
        const uint64_t in_block = offset % page_size;
        const size_t size = std::min<size_t>(from.size(), page_size - in_block);
        auto& block = blocks_[offset / page_size];
        if (!block)
            block = std::make_shared<Block>();
        else if (block.use_count() > 1)
            block = std::make_shared<Block>(*block);
        std::memcpy(block->data() + in_block, from.data(), size);
        offset += size;
        from = from.subspan(size);
    }
}

std::vector<uint64_t> Image::used_blocks() const {
    std::vector<uint64_t> used;
    for (uint64_t i = 0; i < blocks_.size(); ++i)
        if (blocks_[i]) used.push_back(i);
    return used;
}

// One asynchronous operation that waits for its turn.
class Disk::Operation {
  public:
    Operation(Disk& disk, char kind, std::span<const iovec> pieces, uint64_t offset)
        : kind_(kind), pieces_(pieces), offset_(offset), disk_(disk), covered_(disk.unflushed_.size()) {
        for (const iovec& piece : pieces) size_ += piece.iov_len;
    }
    bool await_ready() {
        if (!disk_.immediate_) return false;
        result_ = disk_.apply(*this);
        return true;
    }
    void await_suspend(std::coroutine_handle<> handle) {
        handle_ = handle;
        disk_.waiting_.push_back(this);
    }
    Result<> await_resume() const { return result_; }
    bool writes() const { return kind_ != 'r' && kind_ != 'f'; }
    void complete() {
        result_ = disk_.apply(*this);
        handle_.resume();
    }
    std::vector<std::byte> gathered() const {
        std::vector<std::byte> bytes;
        for (const iovec& piece : pieces_) {
            const auto* const start = static_cast<const std::byte*>(piece.iov_base);
            bytes.insert(bytes.end(), start, start + piece.iov_len);
        }
        return bytes;
    }

    const char kind_;
    const std::span<const iovec> pieces_;
    const uint64_t offset_;
    uint64_t size_ = 0;

  private:
    friend class Disk;
    Disk& disk_;
    size_t covered_;  // flush: the writes that had completed when it was called
    std::coroutine_handle<> handle_;
    Result<> result_;
};

Disk::~Disk() {
    TARN_ASSERT(waiting_.empty());
}

void Disk::note(char kind, uint64_t offset, uint64_t size) {
    ++operation_count_;
    for (const uint64_t word : {static_cast<uint64_t>(kind), offset, size}) hash_ = mix64(hash_ ^ word);
}

Result<> Disk::apply(Operation& operation) {
    note(operation.kind_, operation.offset_, operation.size_);
    switch (operation.kind_) {
        case 'r': {
            if (fails(faults.read)) return fail(Errc::io, EIO, "disk.read");
            uint64_t at = operation.offset_;
            for (const iovec& piece : operation.pieces_) {
                cache_.read(at, {static_cast<std::byte*>(piece.iov_base), piece.iov_len});
                at += piece.iov_len;
            }
            // A reader may see any part of a write that is under way.
            for (const Operation* const other : waiting_) {
                if (!other->writes() || other->offset_ >= at || operation.offset_ >= other->offset_ + other->size_)
                    continue;
                std::vector<std::byte> bytes(other->size_);
                cache_.read(other->offset_, bytes);
                const std::vector<std::byte> newer = other->gathered();
                for (size_t sector = 0; sector < bytes.size(); sector += sector_size)
                    if (random_.chance(50)) std::memcpy(bytes.data() + sector, newer.data() + sector, sector_size);
                uint64_t place = operation.offset_;
                for (const iovec& piece : operation.pieces_) {
                    const uint64_t first = std::max(place, other->offset_);
                    const uint64_t end = std::min(place + piece.iov_len, other->offset_ + other->size_);
                    if (first < end)
                        std::memcpy(static_cast<std::byte*>(piece.iov_base) + (first - place),
                                    bytes.data() + (first - other->offset_), end - first);
                    place += piece.iov_len;
                }
            }
            return {};
        }
        case 'w':
        case 'a':
        case 't': {
            Write write{.offset = operation.offset_, .bytes = operation.gathered(), .atomic = operation.kind_ == 'a'};
            if (full_ && !dead_) return fail(Errc::io, ENOSPC, "disk.write: full");
            if (fails(faults.write)) {
                for (size_t at = 0; !dead_ && at < write.bytes.size(); at += sector_size) {
                    if (random_.chance(50)) continue;
                    const std::span<const std::byte> sector = std::span(write.bytes).subspan(at, sector_size);
                    cache_.write(write.offset + at, sector);
                    unflushed_.push_back({.offset = write.offset + at, .bytes = {sector.begin(), sector.end()}});
                }
                return fail(Errc::io, EIO, "disk.write");
            }
            cache_.write(write.offset, write.bytes);
            if (operation.kind_ == 't') {
                // A later flush must not bring back older writes of the same sectors.
                const bool failed = fails(faults.flush);
                write_sectors(durable_, write.offset, write.bytes, failed ? 50 : 100, random_);
                unflushed_.push_back(std::move(write));
                return failed ? Result<>(fail(Errc::io, EIO, "disk.write_through")) : Result<>();
            }
            unflushed_.push_back(std::move(write));
            return {};
        }
        default: {
            const bool failed = fails(faults.flush);
            // Another flush may have finished meanwhile and taken some of them along.
            const size_t covered = std::min(operation.covered_, unflushed_.size());
            if (dead_) return fail(Errc::io, EIO, "disk.flush");
            for (const Write& write : std::span(unflushed_).first(covered)) {
                if (!failed || (write.atomic && random_.chance(50)))
                    durable_.write(write.offset, write.bytes);
                else if (!write.atomic)
                    write_sectors(durable_, write.offset, write.bytes, 50, random_);
            }
            unflushed_.erase(unflushed_.begin(), unflushed_.begin() + static_cast<ptrdiff_t>(covered));
            for (Operation* const other : waiting_) other->covered_ -= std::min(other->covered_, covered);
            return failed ? Result<>(fail(Errc::io, EIO, "disk.flush")) : Result<>();
        }
    }
}

Task<Result<>> Disk::read(Loop&, std::span<const iovec> into, uint64_t offset_bytes) {
    Operation operation(*this, 'r', into, offset_bytes);
    co_return co_await operation;
}

Task<Result<>> Disk::write(Loop&, std::span<const iovec> from, uint64_t offset_bytes) {
    Operation operation(*this, 'w', from, offset_bytes);
    co_return co_await operation;
}

Task<Result<>> Disk::write_through(Loop&, std::span<const iovec> from, uint64_t offset_bytes) {
    Operation operation(*this, 't', from, offset_bytes);
    co_return co_await operation;
}

Task<Result<>> Disk::write_atomic(Loop&, std::span<const iovec> from, uint64_t offset_bytes) {
    TARN_ASSERT(from.size() == 1 && std::has_single_bit(from[0].iov_len) && from[0].iov_len <= atomic_max &&
                offset_bytes % from[0].iov_len == 0);
    Operation operation(*this, 'a', from, offset_bytes);
    co_return co_await operation;
}

Task<Result<>> Disk::flush(Loop&) {
    Operation operation(*this, 'f', {}, 0);
    co_return co_await operation;
}

Result<> Disk::read_now(std::span<std::byte> into, uint64_t offset_bytes) {
    const iovec piece{.iov_base = into.data(), .iov_len = into.size()};
    if (on_operation) on_operation();
    Operation operation(*this, 'r', std::span(&piece, 1), offset_bytes);
    return apply(operation);
}

Result<> Disk::write_now(std::span<const std::byte> from, uint64_t offset_bytes) {
    const iovec piece{.iov_base = const_cast<std::byte*>(from.data()), .iov_len = from.size()};
    if (on_operation) on_operation();
    Operation operation(*this, 'w', std::span(&piece, 1), offset_bytes);
    return apply(operation);
}

Result<> Disk::flush_now() {
    if (on_operation) on_operation();
    Operation operation(*this, 'f', {}, 0);
    return apply(operation);
}

bool Disk::complete_one() {
    if (waiting_.empty()) return false;
    if (on_operation) on_operation();
    const size_t chosen = random_.chance(newest_first_percent_) ? waiting_.size() - 1 : random_.below(waiting_.size());
    Operation* const operation = waiting_[chosen];
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(chosen));
    operation->complete();
    return true;
}

bool Disk::any_unsettled(uint64_t first, uint64_t end) const {
    const auto within = [&](uint64_t offset) { return offset >= first && offset < end; };
    return std::ranges::any_of(unflushed_, [&](const Write& write) { return within(write.offset); }) ||
           std::ranges::any_of(
               waiting_, [&](const Operation* operation) { return operation->writes() && within(operation->offset_); });
}

// Includes writes that are only under way. The later of two writes of a sector may be lost and the earlier one be
// there: that had left the cache before.
Image Disk::cut(Random& random) const {
    Image image(durable_);
    // The cache keeps nothing, everything, anything, or everything but the end of writes that are only under way.
    enum class Mood : uint8_t { nothing, everything, anything, torn };
    constexpr std::array<Mood, 8> moods = {Mood::nothing,  Mood::everything, Mood::anything, Mood::anything,
                                           Mood::anything, Mood::torn,       Mood::torn,     Mood::torn};
    const Mood mood = moods[random.below(moods.size())];
    for (const Write& write : unflushed_) {
        if (mood == Mood::everything || mood == Mood::torn)
            image.write(write.offset, write.bytes);
        else if (mood == Mood::anything && write.atomic && random.chance(50))
            image.write(write.offset, write.bytes);
        else if (mood == Mood::anything && !write.atomic)
            write_part(image, write.offset, write.bytes, random);
    }
    for (const Operation* const operation : waiting_) {
        if (!operation->writes()) continue;
        const std::vector<std::byte> bytes = operation->gathered();
        if (operation->kind_ == 'a') {
            if (random.chance(50)) image.write(operation->offset_, bytes);
        } else if (mood == Mood::torn) {
            const size_t middle = random.below(bytes.size() / page_size + 1) * page_size;
            if (random.chance(50))
                image.write(operation->offset_, std::span(bytes).first(middle));
            else
                image.write(operation->offset_ + middle, std::span(bytes).subspan(middle));
        } else {
            write_part(image, operation->offset_, bytes, random);
        }
    }
    return image;
}

}  // namespace tarn::store_sim
