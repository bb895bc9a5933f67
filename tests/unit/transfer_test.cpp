#include "tiers/nvme/device/transfer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tiers/nvme/device/page_buffer.hpp"
#include "tiers/page.hpp"

namespace tarn {
namespace {

// Notes the blocks, first and count, of each write that must be whole.
class AtomicDevice final : public BlockDevice {
  public:
    uint64_t size_bytes() const override { return uint64_t{1} << 20; }
    bool direct() const override { return true; }
    Task<Result<>> read(Loop&, std::span<const iovec>, uint64_t) override { co_return Result<>{}; }
    Task<Result<>> write(Loop&, std::span<const iovec>, uint64_t) override { co_return fail(Errc::invalid, 0, "torn"); }
    Task<Result<>> flush(Loop&) override { co_return Result<>{}; }
    Task<Result<>> write_atomic(Loop&, std::span<const iovec> from, uint64_t offset_bytes) override {
        if (from.size() != 1) co_return fail(Errc::invalid, 0, "in pieces");
        writes.emplace_back(offset_bytes / page_size, from[0].iov_len / page_size);
        first_bytes.push_back(*static_cast<const std::byte*>(from[0].iov_base));
        co_return Result<>{};
    }
    Result<> read_now(std::span<std::byte>, uint64_t) override { return {}; }
    Result<> write_now(std::span<const std::byte>, uint64_t) override { return {}; }
    Result<> flush_now() override { return {}; }

    std::vector<std::pair<uint64_t, uint64_t>> writes;
    std::vector<std::byte> first_bytes;
};

class AtomicTransfer : public testing::Test {
  protected:
    void run(std::span<const uint64_t> blocks, uint64_t blocks_max, bool backwards_in_memory = false) {
        const PageBuffer buffer = make_page_buffer(blocks.size());
        Transfer transfer(Transfer::Direction::write_atomic, blocks_max * page_size);
        for (size_t i = 0; i < blocks.size(); ++i) {
            const size_t place = backwards_in_memory ? blocks.size() - 1 - i : i;
            std::byte* const bytes = buffer.get() + place * page_size;
            *bytes = static_cast<std::byte>(blocks[i]);
            transfer.add(blocks[i] * page_size, bytes, page_size);
        }
        ASSERT_TRUE(loop->run_until_done(transfer.run(*loop, device)));
    }
    std::unique_ptr<Loop> loop = std::move(*Loop::create());
    AtomicDevice device;
    using Writes = std::vector<std::pair<uint64_t, uint64_t>>;
};

TEST_F(AtomicTransfer, joins_what_the_device_writes_whole) {
    constexpr std::array<uint64_t, 10> blocks = {3, 4, 5, 6, 7, 8, 9, 10, 12, 13};
    run(blocks, 4);
    EXPECT_EQ(device.writes, (Writes{{3, 1}, {4, 4}, {8, 2}, {10, 1}, {12, 2}}));
    EXPECT_EQ(device.first_bytes[1], std::byte{4});
}

TEST_F(AtomicTransfer, never_passes_the_most_that_is_whole) {
    constexpr std::array<uint64_t, 4> blocks = {0, 1, 2, 3};
    run(blocks, 1);
    EXPECT_EQ(device.writes, (Writes{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
}

TEST_F(AtomicTransfer, is_in_one_piece_of_memory) {
    constexpr std::array<uint64_t, 4> blocks = {0, 1, 2, 3};
    run(blocks, 4, true);
    EXPECT_EQ(device.writes.size(), 4u);
    EXPECT_EQ(device.first_bytes[3], std::byte{3});
}

}  // namespace
}  // namespace tarn
