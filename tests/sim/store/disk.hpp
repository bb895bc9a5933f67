// Disk: a block device in memory that keeps only what a real one promises.
//
// Operations complete in an order that the seed draws. A write is in the cache when it completes; a flush makes durable
// the writes completed when it was called. cut() returns what a power cut at this instant leaves: each 512-byte sector
// of every later write is there or not; an atomic write as a whole. On command operations fail: then part of a write
// may be there, and some writes of a failed flush never become durable, whatever a later flush says.
#pragma once

#include <array>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tests/sim/support/random.hpp"
#include "tiers/nvme/device/block_device.hpp"
#include "tiers/page.hpp"

namespace tarn::store_sim {

using sim::Random;
using Block = std::array<std::byte, page_size>;

// Blocks that were never written are zeros and take no memory; copies share what neither has changed since.
class Image {
  public:
    explicit Image(uint64_t size_bytes) : blocks_(size_bytes / page_size) {}

    uint64_t size_bytes() const { return blocks_.size() * page_size; }
    void read(uint64_t offset, std::span<std::byte> into) const;
    void write(uint64_t offset, std::span<const std::byte> from);
    // The blocks that were ever written.
    std::vector<uint64_t> used_blocks() const;

  private:
    std::vector<std::shared_ptr<Block>> blocks_;
};

// How many of 10,000 operations of a kind fail.
struct DiskFaults {
    unsigned read = 0;
    unsigned write = 0;
    unsigned flush = 0;
};

class Disk final : public BlockDevice {
  public:
    // In immediate mode operations complete when they are called.
    Disk(Image image, uint64_t seed, bool immediate)
        : durable_(image),
          cache_(std::move(image)),
          random_(seed),
          newest_first_percent_(random_.chance(30) ? 80 : 0),
          immediate_(immediate) {}
    ~Disk() override;

    uint64_t size_bytes() const override { return durable_.size_bytes(); }
    bool direct() const override { return true; }
    Task<Result<>> read(Loop& loop, std::span<const iovec> into, uint64_t offset_bytes) override;
    Task<Result<>> write(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) override;
    Task<Result<>> flush(Loop& loop) override;
    Task<Result<>> write_through(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) override;
    uint64_t atomic_write_max() const override { return atomic_max; }
    Task<Result<>> write_atomic(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) override;
    Result<> read_now(std::span<std::byte> into, uint64_t offset_bytes) override;
    Result<> write_now(std::span<const std::byte> from, uint64_t offset_bytes) override;
    Result<> flush_now() override;

    // Completes one waiting operation; false when there is none.
    bool complete_one();
    // Writes that a power cut now may lose; those within [first, end).
    size_t unsettled_count() const { return unflushed_.size() + waiting_.size(); }
    bool any_unsettled(uint64_t first, uint64_t end) const;
    // What a concurrent copy of the disk reads now.
    Image copy() const { return cache_; }
    // The durable contents.
    Image durable() const { return durable_; }
    // The contents after a power cut now; the disk itself goes on.
    Image cut(Random& random) const;
    // Everything fails from here on.
    void die() { dead_ = true; }
    // No write takes effect from here on, though the power stays on; reads and flushes see the old contents.
    void fill() { full_ = true; }
    bool full() const { return full_; }
    void give_space() { full_ = false; }
    DiskFaults faults;
    uint64_t atomic_max = 0;
    // Called before each operation takes effect.
    std::function<void()> on_operation;
    uint64_t hash() const { return hash_; }
    uint64_t operation_count() const { return operation_count_; }

  private:
    struct Write {
        uint64_t offset;
        std::vector<std::byte> bytes;
        bool atomic = false;
    };
    class Operation;

    Result<> apply(Operation& operation);
    void note(char kind, uint64_t offset, uint64_t size);
    bool fails(unsigned rate) { return dead_ || (rate != 0 && random_.below(10000) < rate); }

    Image durable_;
    Image cache_;
    Random random_;
    unsigned newest_first_percent_;  // on some disks older operations wait for long
    bool immediate_;
    bool dead_ = false;
    bool full_ = false;
    std::vector<Operation*> waiting_;
    std::vector<Write> unflushed_;  // completed since, in order
    uint64_t hash_ = 14695981039346656037u;
    uint64_t operation_count_ = 0;
};

// A disk that outlives the store which uses it: the process was killed, and the power stayed on.
class DiskHandle final : public BlockDevice {
  public:
    explicit DiskHandle(Disk& disk) : disk_(disk) {}
    uint64_t size_bytes() const override { return disk_.size_bytes(); }
    bool direct() const override { return true; }
    Task<Result<>> read(Loop& loop, std::span<const iovec> into, uint64_t offset_bytes) override {
        return disk_.read(loop, into, offset_bytes);
    }
    Task<Result<>> write(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) override {
        return disk_.write(loop, from, offset_bytes);
    }
    Task<Result<>> flush(Loop& loop) override { return disk_.flush(loop); }
    Task<Result<>> write_through(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) override {
        return disk_.write_through(loop, from, offset_bytes);
    }
    uint64_t atomic_write_max() const override { return disk_.atomic_write_max(); }
    Task<Result<>> write_atomic(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) override {
        return disk_.write_atomic(loop, from, offset_bytes);
    }
    Result<> read_now(std::span<std::byte> into, uint64_t offset_bytes) override {
        return disk_.read_now(into, offset_bytes);
    }
    Result<> write_now(std::span<const std::byte> from, uint64_t offset_bytes) override {
        return disk_.write_now(from, offset_bytes);
    }
    Result<> flush_now() override { return disk_.flush_now(); }

  private:
    Disk& disk_;
};

}  // namespace tarn::store_sim
