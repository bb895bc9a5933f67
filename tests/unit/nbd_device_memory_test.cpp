// What a device's memory says of writes, and whose memory it is.
#include "tests/unit/nbd_device_fixture.hpp"

namespace tarn::nbd {
namespace {

using NbdDeviceMemory = NbdDevice;

TEST_F(NbdDeviceMemory, receipts_that_the_arena_names_are_written_where_they_belong) {
    DeviceLog log(memory_->log(0), memory_->first_receipt(0));
    const Request request{
        .command = Command::write, .flags = 0, .cookie = 1, .offset_bytes = 0, .size_bytes = 8 * page_size};
    const uint16_t slot = *log.add(request, 0);
    WriteReceipts& receipts = log.receipts(slot);
    const uint64_t name = PageReceipt(&receipts, 5).name();
    memory_->add_receipts(std::array<uint64_t, 4>{name, name + 100'000, uint64_t{1} << 32 | 3, 0});
    EXPECT_TRUE(receipts.has(5));
    EXPECT_FALSE(receipts.has(3));
}

TEST_F(NbdDeviceMemory, what_was_written_and_lost_is_written_again) {
    DeviceLog log(memory_->log(0), memory_->first_receipt(0));
    const Request request{
        .command = Command::write, .flags = 0, .cookie = 1, .offset_bytes = 0, .size_bytes = 8 * page_size};
    WriteReceipts& receipts = log.receipts(*log.add(request, 0));
    const uint32_t number = receipts.number();
    receipts.add(2);
    memory_->forget_receipts();
    EXPECT_FALSE(receipts.has(2));
    EXPECT_EQ(receipts.number(), number);
}

TEST_F(NbdDeviceMemory, it_is_known_when_all_requests_before_a_moment_are_answered) {
    DeviceLog log(memory_->log(0), memory_->first_receipt(0));
    const Request request{.command = Command::flush, .flags = 0, .cookie = 1, .offset_bytes = 0, .size_bytes = 0};
    EXPECT_TRUE(memory_->has_answered(memory_->parsed()));
    const uint16_t first = *log.add(request, 0);
    const std::vector<uint64_t> then = memory_->parsed();
    log.add(request, 0);
    log.finish(first, Errno::none);
    EXPECT_FALSE(memory_->has_answered(then)) << "its answer is not out";
    const std::array<std::byte, DeviceLog::reply_header_size> reply{};
    const DeviceLog::Part part{.slot = first, .begin = 0, .bytes = reply};
    EXPECT_EQ(log.send(daemon_.get(), {&part, 1}), DeviceLog::Sent::yes);
    EXPECT_TRUE(memory_->has_answered(then));
    EXPECT_FALSE(memory_->has_answered(memory_->parsed()));
}

// Then nothing more is received.
TEST_F(NbdDeviceMemory, a_log_is_full_while_it_has_no_slot) {
    DeviceLog log(memory_->log(0), memory_->first_receipt(0));
    const Request request{.command = Command::flush, .flags = 0, .cookie = 1, .offset_bytes = 0, .size_bytes = 0};
    std::optional<uint16_t> last;
    for (size_t i = 0; i < DeviceLog::slot_count; ++i) {
        EXPECT_FALSE(log.is_full());
        last = log.add(request, 0);
    }
    EXPECT_TRUE(log.is_full());
    EXPECT_FALSE(log.add(request, 0));
}

TEST_F(NbdDeviceMemory, memory_of_another_layout_is_not_taken_over) {
    const auto taken = [&] { return DeviceMemory::adopt(UniqueFd(::dup(memory_->fd()))).has_value(); };
    EXPECT_TRUE(taken());
    ++memory_->header().layout;
    EXPECT_FALSE(taken());
    --memory_->header().layout;
    memory_->header().connections = 2;
    EXPECT_FALSE(taken());
    EXPECT_FALSE(DeviceMemory::adopt(UniqueFd(::memfd_create("empty", MFD_CLOEXEC))));
}

}  // namespace
}  // namespace tarn::nbd
