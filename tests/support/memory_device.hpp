// MemoryDevice: a store's device in memory, whose reads and writes can be held back.
#pragma once

#include <cerrno>
#include <cstring>
#include <vector>

#include "tiers/nvme/device/block_device.hpp"
#include "utils/sync.hpp"

namespace tarn {

class MemoryDevice final : public BlockDevice {
  public:
    explicit MemoryDevice(uint64_t size_bytes) : bytes_(size_bytes) {}
    // Copies the present contents of another device.
    explicit MemoryDevice(const MemoryDevice& other) : bytes_(other.bytes_) {}

    // Holds the next read until it is released; it then returns the contents of that moment.
    void hold_next_read() { holds_next_ = true; }
    bool holds_a_read() const { return held_ > 0; }
    // Holds the next write until let_write_go(); can be repeated, one write at a time.
    void hold_next_write() { holds_next_write_ = true; }
    bool holds_a_write() const { return writes_held_ > writes_let_go_; }
    void let_write_go() {
        ++writes_let_go_;
        released_.notify_all();
    }
    // Whether each write fails from now on.
    void fail_writes(bool fails) { writes_fail_ = fails; }
    void let_go() {
        let_go_all_ = true;
        released_.notify_all();
    }

    uint64_t size_bytes() const override { return bytes_.size(); }
    bool direct() const override { return true; }
    Task<Result<>> read(Loop&, std::span<const iovec> into, uint64_t offset) override {
        if (std::exchange(holds_next_, false)) {
            ++held_;
            while (!let_go_all_) co_await released_.wait();
            --held_;
        }
        for (const iovec& piece : into) {
            CO_TRY_VOID(read_now({static_cast<std::byte*>(piece.iov_base), piece.iov_len}, offset));
            offset += piece.iov_len;
        }
        co_return Result<>{};
    }
    Task<Result<>> write(Loop&, std::span<const iovec> from, uint64_t offset) override {
        if (std::exchange(holds_next_write_, false))
            for (const unsigned held = ++writes_held_; writes_let_go_ < held;) co_await released_.wait();
        for (const iovec& piece : from) {
            CO_TRY_VOID(write_now({static_cast<const std::byte*>(piece.iov_base), piece.iov_len}, offset));
            offset += piece.iov_len;
        }
        co_return Result<>{};
    }
    Task<Result<>> flush(Loop&) override { co_return flush_now(); }
    Result<> read_now(std::span<std::byte> into, uint64_t offset) override {
        std::memcpy(into.data(), bytes_.data() + offset, into.size());
        return {};
    }
    Result<> write_now(std::span<const std::byte> from, uint64_t offset) override {
        if (writes_fail_) return fail(Errc::io, EIO, "device.write");
        std::memcpy(bytes_.data() + offset, from.data(), from.size());
        return {};
    }
    Result<> flush_now() override { return {}; }

  private:
    std::vector<std::byte> bytes_;
    bool holds_next_ = false;
    bool let_go_all_ = false;
    bool writes_fail_ = false;
    bool holds_next_write_ = false;
    unsigned held_ = 0;
    unsigned writes_held_ = 0;
    unsigned writes_let_go_ = 0;
    Event released_;
};

}  // namespace tarn
