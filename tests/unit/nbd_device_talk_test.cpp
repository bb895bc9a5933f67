// A device's connection in one process, which is asked this and that: what is refused, told, left to the next process.
#include "tests/unit/nbd_device_talk.hpp"

#include "utils/alarm.hpp"

namespace tarn::nbd {
namespace {

using namespace std::chrono_literals;

// Its writes never come to pass: the host that has the pages is away, until the daemon stops.
class AwayVolume final : public SharedVolume {
  public:
    using SharedVolume::SharedVolume;
    bool try_write(uint64_t, std::span<const std::byte>, WriteReceipts*) override { return false; }
    Task<Result<>> write(uint64_t, std::span<const std::byte>, WriteReceipts*) override {
        is_asked = true;
        asked.notify_all();
        while (!is_stopping) co_await stops.wait();
        co_return fail(Errc::cancelled, 0, "away");
    }
    bool is_asked = false;
    bool is_stopping = false;
    Event asked;
    Event stops;
};

TEST_F(NbdDeviceTalk, what_cannot_be_done_is_refused_and_the_connection_goes_on) {
    constexpr uint32_t too_large = DeviceLog::payload_size_max + 1;
    const auto how = serve([this](DeviceConnection&) -> Task<> {
        co_await send(Bytes().request(Command::write, 1, SharedVolume::size_bytes, page_size).fill(page_size));
        EXPECT_EQ(co_await answer_to(1), Errno::no_space);
        co_await send(Bytes().request(Command::read, 2, SharedVolume::size_bytes, page_size));
        EXPECT_EQ(co_await answer_to(2), Errno::invalid);
        co_await send(Bytes().request(Command::write, 3, 0, too_large).fill(too_large));
        EXPECT_EQ(co_await answer_to(3), Errno::invalid);
        co_await send(Bytes().request(static_cast<Command>(99), 4, 0, 0));
        EXPECT_EQ(co_await answer_to(4), Errno::invalid);
        co_await send(Bytes().request(Command::read, 5, 0, page_size));
        EXPECT_EQ(co_await answer_to(5, page_size), Errno::none);
        co_await send(Bytes().request(Command::disconnect, 6, 0, 0));
    });
    EXPECT_EQ(how, DeviceConnection::End::disconnected);
}

TEST_F(NbdDeviceTalk, an_export_that_is_gone_refuses_everything) {
    serve([this](DeviceConnection& connection) -> Task<> {
        connection.end_export();
        co_await send(Bytes().request(Command::flush, 1, 0, 0));
        EXPECT_EQ(co_await answer_to(1), Errno::shutdown);
        kernel_.reset();
    });
}

class ResizedVolume final : public SharedVolume {
  public:
    using SharedVolume::SharedVolume;
    std::optional<uint64_t> try_size() override { return is_at_hand ? std::optional(now_bytes) : std::nullopt; }
    Task<Result<uint64_t>> size() override { co_return now_bytes; }
    uint64_t now_bytes = size_bytes;
    bool is_at_hand = true;
};

TEST_F(NbdDeviceTalk, a_size_that_is_not_the_one_before_is_told_once) {
    exported_.size_bytes = SharedVolume::size_bytes;
    const auto volume = std::make_shared<ResizedVolume>(bytes_.bytes(), 1);
    serve(volume, [&](DeviceConnection&) -> Task<> {
        const auto told_after_a_request = [&](uint64_t cookie) -> Task<unsigned> {
            co_await send(Bytes().request(Command::flush, cookie, 0, 0));
            EXPECT_EQ(co_await answer_to(cookie), Errno::none);
            co_return resized_;
        };
        EXPECT_EQ(co_await told_after_a_request(1), 0u);
        volume->now_bytes -= page_size;
        EXPECT_EQ(co_await told_after_a_request(2), 1u);
        EXPECT_EQ(co_await told_after_a_request(3), 1u);
        volume->is_at_hand = false;
        volume->now_bytes += page_size;
        EXPECT_EQ(co_await told_after_a_request(4), 2u);
        EXPECT_EQ(co_await told_after_a_request(5), 2u);
        kernel_.reset();
    });
}

TEST_F(NbdDeviceTalk, a_size_that_was_changed_while_no_process_ran_is_told) {
    exported_.size_bytes = SharedVolume::size_bytes - page_size;
    serve([this](DeviceConnection&) -> Task<> {
        co_await send(Bytes().request(Command::flush, 1, 0, 0));
        EXPECT_EQ(co_await answer_to(1), Errno::none);
        EXPECT_EQ(resized_, 1u);
        kernel_.reset();
    });
}

// Each of its writes waits until it may end.
class SlowVolume final : public SharedVolume {
  public:
    using SharedVolume::SharedVolume;
    bool try_write(uint64_t, std::span<const std::byte>, WriteReceipts*) override { return false; }
    Task<Result<>> write(uint64_t, std::span<const std::byte>, WriteReceipts*) override {
        const size_t number = asked++;
        changed.notify_all();
        while (number >= may_end) co_await changed.wait();
        co_return Result<>{};
    }
    size_t asked = 0;
    size_t may_end = 0;
    Event changed;
};

TEST_F(NbdDeviceTalk, what_the_kernel_has_sent_is_read_once_there_is_room_however_little) {
    constexpr uint32_t size = 16 * page_size;
    constexpr size_t fit = DeviceLog::ring_size_bytes / (request_size + size);
    constexpr size_t count = fit + 16;
    const auto volume = std::make_shared<SlowVolume>(bytes_.bytes(), 1);
    serve(volume, [&](DeviceConnection&) -> Task<> {
        Alarm alarm(*loop_, 20s, [&] {
            ADD_FAILURE() << "only " << volume->asked << " of " << count << " were read";
            ::shutdown(kernel_.get(), SHUT_RDWR);
            volume->may_end = count;
            volume->changed.notify_all();
        });
        Gate sending;
        Bytes requests;
        for (size_t i = 0; i < count; ++i) requests.request(Command::write, i, 0, size).fill(size);
        sending.spawn(send(requests));
        while (volume->asked < fit) co_await volume->changed.wait();
        for (size_t i = 0; i < count && !HasFailure(); ++i) {
            ++volume->may_end;
            volume->changed.notify_all();
            EXPECT_EQ(co_await answer_to(i), Errno::none);
        }
        co_await alarm.end();
        co_await sending.close();
        kernel_.reset();
    });
    EXPECT_EQ(volume->asked, count);
}

// Its pages are in frames once, and never again: the rest of a read is to be kept.
class OncePinnedVolume final : public SharedVolume {
  public:
    using SharedVolume::SharedVolume;
    bool try_pin(uint64_t offset_bytes, uint32_t size, std::vector<Pin>& pins) override {
        miss_every = UINT_MAX;
        return !std::exchange(was_pinned_, true) && SharedVolume::try_pin(offset_bytes, size, pins);
    }
    Task<Result<>> read(uint64_t, std::span<std::byte>) override { co_return fail(Errc::io, 0, "unreadable by now"); }
    Task<Result<>> flush() override { co_return Result<>{}; }

  private:
    bool was_pinned_ = false;
};

TEST_F(NbdDeviceTalk, an_answer_that_was_begun_ends_before_the_next_one) {
    constexpr uint32_t size = 48 * page_size;
    const int room = 4096;
    ASSERT_EQ(::setsockopt(daemon_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    serve(std::make_shared<OncePinnedVolume>(bytes_.bytes(), 1), [this](DeviceConnection&) -> Task<> {
        co_await send(Bytes().request(Command::read, 1, 0, size).request(Command::flush, 2, 0, 0));
        EXPECT_EQ(co_await answer_to(1, size), Errno::none);
        EXPECT_EQ(co_await answer_to(2), Errno::none);
        kernel_.reset();
    });
}

TEST_F(NbdDeviceTalk, what_is_no_request_ends_the_connection) {
    const auto how = serve([this](DeviceConnection&) -> Task<> { co_await send(Bytes().fill(28, std::byte{7})); });
    EXPECT_EQ(how, DeviceConnection::End::lost);
}

TEST_F(NbdDeviceTalk, what_waits_at_a_stop_is_left_to_the_next_process) {
    const auto away = std::make_shared<AwayVolume>(bytes_.bytes(), 1);
    const auto how = serve(away, [&](DeviceConnection& connection) -> Task<> {
        co_await send(Bytes().request(Command::write, 1, 0, page_size).fill(page_size, std::byte{9}));
        while (!away->is_asked) co_await away->asked.wait();
        connection.stop();
        away->is_stopping = true;
        away->stops.notify_all();
    });
    EXPECT_EQ(how, DeviceConnection::End::stopped);
    std::byte byte;
    ASSERT_EQ(::recv(kernel_.get(), &byte, 1, MSG_DONTWAIT), -1) << "no answer";
    serve([this](DeviceConnection&) -> Task<> {
        EXPECT_EQ(co_await answer_to(1), Errno::none);
        kernel_.reset();
    });
    EXPECT_EQ(bytes_.bytes()[100], std::byte{9});
}

// Somebody else may have written it meanwhile.
TEST_F(NbdDeviceTalk, what_goes_on_leaves_a_page_that_it_has_written_as_it_is) {
    const auto away = std::make_shared<AwayVolume>(bytes_.bytes(), 1);
    serve(away, [&](DeviceConnection& connection) -> Task<> {
        co_await send(Bytes().request(Command::write, 1, 0, 2 * page_size).fill(2 * page_size, std::byte{9}));
        while (!away->is_asked) co_await away->asked.wait();
        connection.stop();
        away->is_stopping = true;
        away->stops.notify_all();
    });
    DeviceLog log(memory_->log(0), memory_->first_receipt(0));
    ASSERT_EQ(log.used().size(), 1u);
    log.receipts(log.used().front()).add(0);
    std::ranges::fill(bytes_.bytes().first(page_size), std::byte{5});
    const auto volume = std::make_shared<SharedVolume>(bytes_.bytes(), 1);
    volume->miss_every = UINT_MAX;
    serve(volume, [this](DeviceConnection&) -> Task<> {
        EXPECT_EQ(co_await answer_to(1), Errno::none);
        kernel_.reset();
    });
    EXPECT_EQ(bytes_.bytes()[100], std::byte{5});
    EXPECT_EQ(bytes_.bytes()[page_size + 100], std::byte{9});
}

// Its size cannot be read, until it is said that it can.
class UnmeasuredVolume final : public SharedVolume {
  public:
    using SharedVolume::SharedVolume;
    std::optional<uint64_t> try_size() override { return std::nullopt; }
    Task<Result<uint64_t>> size() override {
        if (!is_measured) co_return fail(Errc::io, EIO, "played");
        co_return size_bytes;
    }
    bool is_measured = false;
};

TEST_F(NbdDeviceTalk, what_needs_the_size_of_the_volume_fails_until_that_can_be_read) {
    exported_.size_bytes = SharedVolume::size_bytes;
    const auto volume = std::make_shared<UnmeasuredVolume>(bytes_.bytes(), 1);
    serve(volume, [&](DeviceConnection&) -> Task<> {
        co_await send(Bytes().request(Command::write, 1, 0, page_size).fill(page_size));
        EXPECT_EQ(co_await answer_to(1), Errno::io);
        volume->is_measured = true;
        co_await send(Bytes().request(Command::write, 2, 0, page_size).fill(page_size));
        EXPECT_EQ(co_await answer_to(2), Errno::none);
        kernel_.reset();
    });
}

TEST_F(NbdDeviceTalk, a_flush_needs_no_size) {
    serve(std::make_shared<UnmeasuredVolume>(bytes_.bytes(), 1), [this](DeviceConnection&) -> Task<> {
        co_await send(Bytes().request(Command::flush, 1, 0, 0));
        EXPECT_EQ(co_await answer_to(1), Errno::none);
        kernel_.reset();
    });
}

TEST_F(NbdDeviceTalk, an_answer_whose_header_was_sent_in_part_goes_on_before_others) {
    constexpr size_t sent_bytes = 5;
    {
        DeviceLog log(memory_->log(0), memory_->first_receipt(0));
        const Bytes requests = Bytes().request(Command::flush, 1, 0, 0).request(Command::flush, 2, 0, 0);
        ASSERT_GT(::send(kernel_.get(), requests.bytes().data(), requests.bytes().size(), 0), 0);
        ASSERT_GT(log.receive(daemon_.get()), 0);
        for (int i = 0; i < 2; ++i) {
            const uint16_t slot = *log.add(*decode_request(log.unparsed().first<request_size>()), 0);
            log.finish(slot, Errno::none);
            if (i == 1) memory_->log(0).slots[slot].sent_bytes = sent_bytes;
        }
    }
    serve([this](DeviceConnection&) -> Task<> {
        std::vector<std::byte> rest(DeviceLog::reply_header_size - sent_bytes);
        EXPECT_EQ((co_await loop_->receive(kernel_.get(), rest, MSG_WAITALL)).value_or(0), rest.size());
        EXPECT_EQ(load_big<uint64_t>(rest.data() + rest.size() - sizeof(uint64_t)), 2u);
        EXPECT_EQ(co_await answer_to(1), Errno::none);
        kernel_.reset();
    });
}

TEST_F(NbdDeviceTalk, who_says_that_it_disconnects_is_answered_nothing_more) {
    const auto volume = std::make_shared<SharedVolume>(bytes_.bytes(), 1);
    volume->miss_every = UINT_MAX;
    const auto how = serve(volume, [this](DeviceConnection&) -> Task<> {
        co_await send(Bytes()
                          .request(Command::write, 1, 0, page_size)
                          .fill(page_size, std::byte{9})
                          .request(Command::disconnect, 2, 0, 0));
    });
    EXPECT_EQ(how, DeviceConnection::End::disconnected);
    EXPECT_EQ(bytes_.bytes()[100], std::byte{9});
    std::byte byte;
    EXPECT_EQ(::recv(kernel_.get(), &byte, 1, MSG_DONTWAIT), -1);
}

}  // namespace
}  // namespace tarn::nbd
