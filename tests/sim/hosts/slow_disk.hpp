// SlowDisk: the disk of one process of a simulated host. Operations take their time, each its own, so that they end in
// another order than they began; when the process ends, some of what is under way still reaches the disk.
#pragma once

#include <list>

#include "tests/sim/hosts/kernel.hpp"
#include "tests/sim/store/disk.hpp"

namespace tarn::hosts_sim {

class SlowDisk final : public BlockDevice {
  public:
    SlowDisk(store_sim::Disk& disk, Kernel& kernel) : disk_(disk), kernel_(kernel) {}

    // The process ends: of the writes that are under way each is on the disk or not, and everything fails from here on.
    void cut_off();

    uint64_t size_bytes() const override { return disk_.size_bytes(); }
    bool direct() const override { return true; }
    Task<Result<>> read(Loop& loop, std::span<const iovec> into, uint64_t offset_bytes) override;
    Task<Result<>> write(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) override;
    Task<Result<>> flush(Loop& loop) override;
    Result<> read_now(std::span<std::byte> into, uint64_t offset_bytes) override {
        return disk_.read_now(into, offset_bytes);
    }
    Result<> write_now(std::span<const std::byte> from, uint64_t offset_bytes) override {
        return is_cut_off_ ? Result<>(fail(Errc::io, EIO, "disk.write")) : disk_.write_now(from, offset_bytes);
    }
    Result<> flush_now() override {
        return is_cut_off_ ? Result<>(fail(Errc::io, EIO, "disk.flush")) : disk_.flush_now();
    }

  private:
    struct Write {
        std::span<const iovec> from;
        uint64_t offset_bytes;
    };
    Task<> pass_time(Loop& loop);

    store_sim::Disk& disk_;
    Kernel& kernel_;
    std::list<Write> under_way_;
    bool is_cut_off_ = false;
};

}  // namespace tarn::hosts_sim
