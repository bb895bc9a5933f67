// OverlayDevice: reads another device, and keeps in memory what is written over it.
//
// So the tools run the real recovery on a store that they must not change.
#pragma once

#include <cstring>
#include <map>
#include <vector>

#include "tiers/nvme/device/block_device.hpp"
#include "tiers/page.hpp"

namespace tarn {

class OverlayDevice final : public BlockDevice {
  public:
    // below must outlive it.
    explicit OverlayDevice(BlockDevice& below) : below_(below) {}

    uint64_t size_bytes() const override { return below_.size_bytes(); }
    bool direct() const override { return below_.direct(); }

    Task<Result<>> read(Loop&, std::span<const iovec> into, uint64_t offset_bytes) override {
        for (const iovec& piece : into) {
            CO_TRY_VOID(read_now({static_cast<std::byte*>(piece.iov_base), piece.iov_len}, offset_bytes));
            offset_bytes += piece.iov_len;
        }
        co_return Result<>{};
    }
    Task<Result<>> write(Loop&, std::span<const iovec> from, uint64_t offset_bytes) override {
        for (const iovec& piece : from) {
            CO_TRY_VOID(write_now({static_cast<const std::byte*>(piece.iov_base), piece.iov_len}, offset_bytes));
            offset_bytes += piece.iov_len;
        }
        co_return Result<>{};
    }
    Task<Result<>> flush(Loop&) override { co_return Result<>{}; }

    Result<> read_now(std::span<std::byte> into, uint64_t offset_bytes) override {
        TRY_VOID(below_.read_now(into, offset_bytes));
        const uint64_t end = offset_bytes + into.size();
        for (auto block = blocks_.lower_bound(offset_bytes); block != blocks_.end() && block->first < end; ++block)
            std::memcpy(into.data() + (block->first - offset_bytes), block->second.data(), page_size);
        return {};
    }
    Result<> write_now(std::span<const std::byte> from, uint64_t offset_bytes) override {
        for (; !from.empty(); from = from.subspan(page_size), offset_bytes += page_size)
            blocks_[offset_bytes].assign(from.begin(), from.begin() + page_size);
        return {};
    }
    Result<> flush_now() override { return {}; }

  private:
    BlockDevice& below_;
    std::map<uint64_t, std::vector<std::byte>> blocks_;  // by offset; all of whole blocks
};

}  // namespace tarn
