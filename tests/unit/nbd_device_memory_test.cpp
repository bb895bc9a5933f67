// What a device's memory says of writes, and whose memory it is.
#include <set>

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

bool is_taken_over(const DeviceMemory& memory) {
    return DeviceMemory::adopt(UniqueFd(::dup(memory.fd()))).has_value();
}

TEST_F(NbdDeviceMemory, memory_of_another_layout_is_not_taken_over) {
    EXPECT_TRUE(is_taken_over(*memory_));
    ++memory_->header().layout;
    EXPECT_FALSE(is_taken_over(*memory_));
    --memory_->header().layout;
    memory_->header().connections = 2;
    EXPECT_FALSE(is_taken_over(*memory_));
    memory_->header().connections = 1;
    for (const uint32_t block_size_bytes : {0, 512, 1024, 4096}) {
        memory_->header().block_size_bytes = block_size_bytes;
        EXPECT_EQ(is_taken_over(*memory_), block_size_bytes == 512 || block_size_bytes == 4096);
    }
    EXPECT_FALSE(DeviceMemory::adopt(UniqueFd(::memfd_create("empty", MFD_CLOEXEC))));
}

// It is of a program that has put something else behind the first log.
TEST_F(NbdDeviceMemory, memory_of_more_connections_than_it_says_is_not_taken_over) {
    const DeviceMemory memory = std::move(*DeviceMemory::create({.connections = 2}, "disk"));
    EXPECT_TRUE(is_taken_over(memory));
    memory.header().connections = 1;
    EXPECT_FALSE(is_taken_over(memory));
}

TEST_F(NbdDeviceMemory, memory_whose_volume_has_a_name_without_an_end_is_not_taken_over) {
    memory_->header().volume.fill('x');
    EXPECT_FALSE(is_taken_over(*memory_));
    memory_->header().volume.back() = '\0';
    EXPECT_TRUE(is_taken_over(*memory_));
}

// Of two writes of a page each, which have come.
class NbdDeviceLogs : public NbdDevice {
  protected:
    static constexpr Request write{
        .command = Command::write, .flags = 0, .cookie = 1, .offset_bytes = 0, .size_bytes = page_size};
    void SetUp() override {
        NbdDevice::SetUp();
        log_.emplace(memory_->log(0), memory_->first_receipt(0));
        Bytes requests;
        requests.request(Command::write, 1, 0, page_size).fill(page_size, std::byte{1});
        requests.request(Command::write, 2, 0, page_size).fill(page_size, std::byte{2});
        come(requests);
        first_ = *log_->add(write, page_size);
        second_ = *log_->add(write, page_size);
    }
    void come(const Bytes& bytes) {
        ASSERT_EQ(::send(kernel_.get(), bytes.bytes().data(), bytes.bytes().size(), 0),
                  static_cast<ssize_t>(bytes.bytes().size()));
        ASSERT_GT(log_->receive(daemon_.get()), 0);
    }
    void more_comes() {
        Bytes more;
        come(more.fill(16 * page_size, std::byte{7}));
    }
    bool second_is_there() const {
        return std::ranges::all_of(log_->payload(second_), [](std::byte each) { return each == std::byte{2}; });
    }

    std::optional<DeviceLog> log_;
    uint16_t first_ = 0;
    uint16_t second_ = 0;
};

TEST_F(NbdDeviceLogs, a_parked_write_that_ends_leaves_the_one_in_the_ring) {
    log_->park(first_);
    log_->finish(first_, Errno::none);
    more_comes();
    EXPECT_TRUE(second_is_there());
}

TEST_F(NbdDeviceLogs, what_is_parked_may_be_parked_again) {
    log_->park(first_);
    log_.emplace(memory_->log(0), memory_->first_receipt(0));
    log_->park(first_);
    more_comes();
    EXPECT_TRUE(second_is_there());
}

TEST_F(NbdDeviceLogs, a_slot_that_does_not_count_as_parsed_is_free) {
    memory_->log(0).parsed.store(memory_->log(0).slots[second_].begin.load());
    log_.emplace(memory_->log(0), memory_->first_receipt(0));
    EXPECT_EQ(log_->used(), std::vector<uint16_t>{first_});
}

TEST_F(NbdDeviceLogs, an_error_that_was_about_to_be_told_is_none) {
    memory_->log(0).slots[second_].request.command = Command::read;
    memory_->log(0).slots[second_].error = Errno::io;
    log_.emplace(memory_->log(0), memory_->first_receipt(0));
    EXPECT_EQ(log_->slot(second_).reply_size(), 16 + page_size);
}

TEST_F(NbdDeviceLogs, a_slot_whose_answer_was_out_is_free_once) {
    log_->finish(first_, Errno::none);
    DeviceLog::Memory& memory = memory_->log(0);
    memory.parts[0] = {.slot = first_, .message = 0, .begin = 0, .size = 16};
    memory.messages[0].msg_len = 16;
    memory.part_count.store(1);
    log_.emplace(memory, memory_->first_receipt(0));
    std::set<uint16_t> slots{second_};
    const Request flush{.command = Command::flush, .flags = 0, .cookie = 1, .offset_bytes = 0, .size_bytes = 0};
    while (const auto slot = log_->add(flush, 0)) EXPECT_TRUE(slots.insert(*slot).second) << *slot;
    EXPECT_EQ(slots.size(), DeviceLog::slot_count);
}

// Nothing more is sent before there is room, though each message was begun.
TEST_F(NbdDeviceLogs, a_socket_that_takes_a_part_of_the_last_message_is_full) {
    const int room = 4096;
    ASSERT_EQ(::setsockopt(daemon_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    Request read = write;
    read.command = Command::read;
    read.size_bytes = DeviceLog::message_size_max - DeviceLog::reply_header_size;
    const std::vector<std::byte> reply(DeviceLog::message_size_max);
    const DeviceLog::Part part{.slot = *log_->add(read, 0), .begin = 0, .bytes = reply};
    EXPECT_EQ(log_->send(daemon_.get(), {&part, 1}), DeviceLog::Sent::full);
    const uint32_t sent_bytes = log_->slot(part.slot).sent_bytes;
    EXPECT_GT(sent_bytes, 0u);
    EXPECT_LT(sent_bytes, reply.size());
}

TEST_F(NbdDeviceLogs, what_is_used_is_named_in_its_order) {
    log_->finish(first_, Errno::none);
    const std::array<std::byte, DeviceLog::reply_header_size> reply{};
    const DeviceLog::Part part{.slot = first_, .begin = 0, .bytes = reply};
    EXPECT_EQ(log_->send(daemon_.get(), {&part, 1}), DeviceLog::Sent::yes);
    const uint16_t third = *log_->add(write, 0);
    EXPECT_EQ(log_->used(), (std::vector<uint16_t>{second_, third}));
}

}  // namespace
}  // namespace tarn::nbd
