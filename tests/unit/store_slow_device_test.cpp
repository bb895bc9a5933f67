// A store on a device that takes its time, and on one that then fails: who waits, who does not, and what they are told.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/store_identity.hpp"
#include "tests/support/turns.hpp"
#include "tiers/nvme/device/page_buffer.hpp"
#include "tiers/nvme/scrubber.hpp"
#include "tiers/nvme/store.hpp"

namespace tarn {
namespace {

// In memory; its flushes wait until they are let go.
class HeldDevice final : public BlockDevice {
  public:
    explicit HeldDevice(uint64_t size_bytes) : bytes_(size_bytes) {}
    uint64_t size_bytes() const override { return bytes_.size(); }
    bool direct() const override { return true; }
    Task<Result<>> read(Loop&, std::span<const iovec> into, uint64_t offset) override {
        for (const iovec& piece : into) {
            CO_TRY_VOID(read_now({static_cast<std::byte*>(piece.iov_base), piece.iov_len}, offset));
            offset += piece.iov_len;
        }
        co_return Result<>{};
    }
    Task<Result<>> write(Loop&, std::span<const iovec> from, uint64_t offset) override {
        for (const iovec& piece : from) {
            CO_TRY_VOID(write_now({static_cast<const std::byte*>(piece.iov_base), piece.iov_len}, offset));
            offset += piece.iov_len;
        }
        co_return Result<>{};
    }
    Task<Result<>> flush(Loop&) override {
        while (held_) co_await let_go_.wait();
        co_return outcome_;
    }
    Result<> read_now(std::span<std::byte> into, uint64_t offset) override {
        std::memcpy(into.data(), bytes_.data() + offset, into.size());
        return {};
    }
    Result<> write_now(std::span<const std::byte> from, uint64_t offset) override {
        std::memcpy(bytes_.data() + offset, from.data(), from.size());
        return {};
    }
    Result<> flush_now() override { return {}; }

    void hold() { held_ = true; }
    void let_go(const Result<>& outcome) {
        held_ = false;
        outcome_ = outcome;
        let_go_.notify_all();
    }
    void flip_bit(uint64_t offset) { bytes_[offset] ^= std::byte{1}; }

  private:
    std::vector<std::byte> bytes_;
    bool held_ = false;
    Result<> outcome_;
    Event let_go_;
};

class StoreOnSlowDevice : public testing::Test {
  protected:
    StoreOnSlowDevice() : loop_(std::move(*Loop::create())), pages_(make_page_buffer(pages_max)) {
        auto device = std::make_unique<HeldDevice>(uint64_t{8} << 20);
        device_ = device.get();
        const StoreFormat format{.identity = store_identity, .store = {7}, .size_bytes = device->size_bytes()};
        EXPECT_TRUE(Store::format_device(*device, format));
        layout_ = StoreLayout::of(StoreGeometry::of_device(device->size_bytes()));
        store_ = std::move(*loop_->run_until_done(Store::open(*loop_, std::move(device), store_identity)));
    }
    ~StoreOnSlowDevice() override { loop_->run_until_done(store_->settle(*loop_)); }

    static constexpr size_t pages_max = 32;

    Result<> write(uint64_t first, size_t count, uint8_t value) {
        std::memset(pages_.get(), value, count * page_size);
        std::vector<PageWrite> writes;
        for (size_t i = 0; i < count; ++i)
            writes.push_back({.page = PageId::of(1, first + i), .tenure = 1, .bytes = pages_.get() + i * page_size});
        return loop_->run_until_done(store_->write(*loop_, writes));
    }
    int value_of(uint64_t page) {
        const std::span<std::byte, page_size> into(pages_.get(), page_size);
        if (!loop_->run_until_done(store_->read(*loop_, PageId::of(1, page), into))) return -1;
        return static_cast<int>(into[0]);
    }
    Task<> flush_into(std::optional<Result<>>& into) { into = co_await store_->flush(*loop_); }

    std::unique_ptr<Loop> loop_;
    HeldDevice* device_ = nullptr;
    StoreLayout layout_;
    std::unique_ptr<Store> store_;
    PageBuffer pages_;
};

TEST_F(StoreOnSlowDevice, only_flushes_wait_for_it) {
    ASSERT_TRUE(write(0, 1, 1));
    device_->hold();
    Gate flushes;
    std::optional<Result<>> first;
    std::optional<Result<>> second;
    flushes.spawn(flush_into(first));
    loop_->run_until_done(turns(*loop_));
    ASSERT_TRUE(write(1, 1, 2)) << "beside a flush that takes long";
    flushes.spawn(flush_into(second));
    loop_->run_until_done(turns(*loop_));
    EXPECT_FALSE(first || second) << "nobody is told a success that is none";
    EXPECT_EQ(value_of(0), 1);
    EXPECT_EQ(value_of(1), 2);
    device_->let_go({});
    loop_->run_until_done(flushes.close());
    EXPECT_TRUE(first && *first);
    EXPECT_TRUE(second && *second);
}

TEST_F(StoreOnSlowDevice, a_flush_that_fails_at_last_fails_all_who_waited_and_all_later_ones) {
    ASSERT_TRUE(write(0, 1, 1));
    device_->hold();
    Gate flushes;
    std::array<std::optional<Result<>>, 3> results;
    for (std::optional<Result<>>& result : results) flushes.spawn(flush_into(result));
    loop_->run_until_done(turns(*loop_));
    device_->let_go(fail(Errc::io, EIO, "device"));
    loop_->run_until_done(flushes.close());
    for (const std::optional<Result<>>& result : results) EXPECT_TRUE(result && !*result);
    device_->let_go({});
    EXPECT_FALSE(loop_->run_until_done(store_->flush(*loop_))) << "nobody knows what the device dropped";
    ASSERT_TRUE(store_->failure());
    EXPECT_EQ(value_of(0), 1);
}

TEST_F(StoreOnSlowDevice, a_pass_finds_every_rotten_page_and_goes_on) {
    ASSERT_TRUE(write(0, 32, 1));
    ASSERT_TRUE(loop_->run_until_done(store_->close(*loop_)));
    device_->flip_bit(layout_.data_offset + 3 * page_size);
    device_->flip_bit(layout_.data_offset + 30 * page_size + 4095);
    Scrubber scrubber(*store_, *loop_);
    ASSERT_TRUE(scrubber.start(std::nullopt, 0));
    EXPECT_EQ(scrubber.start(1, 0).error().code, Errc::busy);
    while (scrubber.progress().running) loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(scrubber.progress().pages_total, 32u);
    EXPECT_EQ(scrubber.progress().pages_checked, 32u);
    EXPECT_EQ(scrubber.progress().bad_pages, (std::vector<PageId>{PageId::of(1, 3), PageId::of(1, 30)}));
    EXPECT_EQ(store_->bad_page_count(), 2u) << "each has one line in the log";
    ASSERT_TRUE(scrubber.start(2, 0)) << "a volume without pages";
    while (scrubber.progress().running) loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(scrubber.progress().pages_total, 0u);
    EXPECT_EQ(scrubber.progress().passes, 2u);
    loop_->run_until_done(scrubber.close());
}

TEST_F(StoreOnSlowDevice, a_slow_pass_can_be_cancelled) {
    ASSERT_TRUE(write(0, 32, 1));
    Scrubber scrubber(*store_, *loop_);
    ASSERT_TRUE(scrubber.start(1, 1));  // a byte a second
    loop_->run_until_done(turns(*loop_));
    EXPECT_TRUE(scrubber.progress().running);
    loop_->run_until_done(scrubber.close());
    EXPECT_TRUE(scrubber.progress().cancelled);
    EXPECT_FALSE(scrubber.progress().running);
    EXPECT_EQ(scrubber.progress().passes, 0u);
}

}  // namespace
}  // namespace tarn
