// Answers to reads of a device that go out in parts: once the first byte is out the rest can follow, as the kernel
// waits for it without an end; and what cannot be read is an error before.
#include "tests/unit/nbd_device_talk.hpp"
#include "utils/alarm.hpp"

namespace tarn::nbd {
namespace {

// Pins nothing; reads fail as often as is said.
class CopiedVolume final : public SharedVolume {
  public:
    using SharedVolume::SharedVolume;
    bool try_pin(uint64_t offset_bytes, uint32_t size, std::vector<Pin>& pins) override {
        miss_every = UINT_MAX;
        if (pins_left == 0) return false;
        --pins_left;
        return SharedVolume::try_pin(offset_bytes, size, pins);
    }
    Task<Result<>> fetch(uint64_t, uint64_t) override { co_return Result<>{}; }
    Task<Result<>> read(uint64_t offset_bytes, std::span<std::byte> into) override {
        ++reads;
        asked.notify_all();
        if (is_away) {
            while (!is_stopping) co_await stops.wait();
            co_return fail(Errc::cancelled);
        }
        if (failing_reads > 0) {
            --failing_reads;
            co_return fail(Errc::io, EIO, "unreadable");
        }
        most_at_once = std::max(most_at_once, ++at_once);
        const Result<> read = co_await SharedVolume::read(offset_bytes, into);
        --at_once;
        co_return read;
    }
    unsigned pins_left = 0;
    unsigned failing_reads = 0;
    unsigned reads = 0;
    unsigned at_once = 0;
    unsigned most_at_once = 0;
    bool is_away = false;
    bool is_stopping = false;
    Event asked;
    Event stops;
};

class NbdDeviceReads : public NbdDeviceTalk {
  protected:
    static constexpr uint32_t size = 48 * page_size;
    static constexpr uint32_t large = 64 * page_size;

    // Serves until a part of the answer to a read of `size` bytes was taken, and leaves the rest to the next process,
    // and the answers to what came behind.
    void answer_in_part(const Bytes& behind = {}) {
        const int room = 4096;
        ASSERT_EQ(::setsockopt(daemon_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
        std::ranges::fill(bytes_.bytes().first(size), std::byte{6});
        const auto volume = std::make_shared<SharedVolume>(bytes_.bytes(), 1);
        volume->miss_every = UINT_MAX;
        serve(volume, [&](DeviceConnection& connection) -> Task<> {
            Bytes requests = Bytes().request(Command::read, 1, 0, size);
            co_await send(requests.add(behind));
            EXPECT_EQ(co_await answer_to(1, page_size), Errno::none);
            connection.stop();
        });
    }
    // The rest of that answer.
    Task<> rest_comes() {
        std::vector<std::byte> rest(size - page_size);
        const Result<size_t> count = co_await loop_->receive(kernel_.get(), rest, MSG_WAITALL);
        EXPECT_EQ(count.value_or(0), rest.size());
        EXPECT_TRUE(std::ranges::all_of(rest, [](std::byte each) { return each == std::byte{6}; }));
    }
    std::shared_ptr<CopiedVolume> copied() { return std::make_shared<CopiedVolume>(bytes_.bytes(), 1); }
};

TEST_F(NbdDeviceReads, a_read_that_takes_several_sends_fails_before_its_first_byte) {
    const auto volume = copied();
    volume->failing_reads = 1;
    volume->pins_left = 1;
    serve(volume, [&](DeviceConnection&) -> Task<> {
        co_await send(Bytes().request(Command::read, 1, 0, large));
        EXPECT_EQ(co_await answer_to(1), Errno::io);
        co_await send(Bytes().request(Command::read, 2, 0, large));
        EXPECT_EQ(co_await answer_to(2, large), Errno::none);
        kernel_.reset();
    });
}

TEST_F(NbdDeviceReads, large_reads_are_copied_one_after_the_other_and_all_are_answered) {
    const auto volume = copied();
    serve(volume, [&](DeviceConnection&) -> Task<> {
        Bytes requests;
        for (uint64_t i = 0; i < 20; ++i) requests.request(Command::read, i, 0, i % 2 == 0 ? large : page_size);
        co_await send(requests);
        std::vector<bool> answered(20);
        for (size_t i = 0; i < answered.size() && !HasFailure(); ++i) {
            std::vector<std::byte> bytes(16);
            EXPECT_EQ((co_await loop_->receive(kernel_.get(), bytes, MSG_WAITALL)).value_or(0), 16u);
            const auto cookie = load_big<uint64_t>(bytes.data() + 8);
            answered.at(cookie) = true;
            bytes.resize(cookie % 2 == 0 ? large : page_size);
            EXPECT_EQ((co_await loop_->receive(kernel_.get(), bytes, MSG_WAITALL)).value_or(0), bytes.size());
        }
        EXPECT_EQ(std::ranges::count(answered, true), 20);
        kernel_.reset();
    });
    EXPECT_EQ(volume->most_at_once, 1u);
}

// It may not be readable a second time, and others have to wait for it.
TEST_F(NbdDeviceReads, what_was_copied_of_a_read_is_kept_until_the_socket_has_taken_all_of_it) {
    const int room = 4096;
    ASSERT_EQ(::setsockopt(daemon_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    const auto volume = copied();
    serve(volume, [&](DeviceConnection&) -> Task<> {
        co_await send(Bytes().request(Command::read, 1, 0, large));
        EXPECT_EQ(co_await answer_to(1, large), Errno::none);
        kernel_.reset();
    });
    EXPECT_EQ(volume->reads, 1u);
}

TEST_F(NbdDeviceReads, the_rest_of_an_answer_of_the_process_before_is_tried_until_it_can_be_read) {
    answer_in_part();
    const auto volume = copied();
    volume->failing_reads = 2;
    serve(volume, [&](DeviceConnection&) -> Task<> {
        co_await rest_comes();
        EXPECT_EQ(volume->reads, 3u);
        kernel_.reset();
    });
}

TEST_F(NbdDeviceReads, the_rest_of_an_answer_of_the_process_before_comes_before_other_answers) {
    answer_in_part(Bytes().request(Command::write, 2, size, page_size).fill(page_size));
    serve(copied(), [&](DeviceConnection&) -> Task<> {
        Alarm alarm(*loop_, std::chrono::seconds(5), [&] { ::shutdown(kernel_.get(), SHUT_RDWR); });
        co_await rest_comes();
        if (!HasFailure()) EXPECT_EQ(co_await answer_to(2), Errno::none);
        co_await alarm.end();
        kernel_.reset();
    });
}

TEST_F(NbdDeviceReads, the_rest_of_an_answer_is_left_to_the_next_process_at_a_stop) {
    answer_in_part();
    const auto volume = copied();
    volume->is_away = true;
    const auto how = serve(volume, [&](DeviceConnection& connection) -> Task<> {
        while (volume->reads == 0) co_await volume->asked.wait();
        connection.stop();
        volume->is_stopping = true;
        volume->stops.notify_all();
    });
    EXPECT_EQ(how, DeviceConnection::End::stopped);
    EXPECT_EQ(volume->reads, 1u);
    serve([this](DeviceConnection&) -> Task<> {
        co_await rest_comes();
        kernel_.reset();
    });
}

// The socket has room again just then.
TEST_F(NbdDeviceReads, a_stop_while_the_socket_is_full_begins_nothing_more) {
    const int room = 4096;
    ASSERT_EQ(::setsockopt(daemon_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    const auto volume = copied();
    volume->pins_left = 1;
    const auto how = serve(volume, [&](DeviceConnection& connection) -> Task<> {
        co_await send(Bytes().request(Command::read, 1, 0, size).request(Command::read, 2, 0, page_size));
        EXPECT_EQ(co_await answer_to(1, page_size), Errno::none);
        for (int i = 0; i < 10; ++i) co_await Yield(*loop_);
        std::vector<std::byte> bytes(size);
        EXPECT_GT(::recv(kernel_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT), 0);
        connection.stop();
    });
    EXPECT_EQ(how, DeviceConnection::End::stopped);
    serve([this](DeviceConnection&) -> Task<> {
        std::vector<std::byte> bytes(size - page_size);
        EXPECT_TRUE(co_await loop_->receive(kernel_.get(), bytes));
        kernel_.reset();
    });
}

}  // namespace
}  // namespace tarn::nbd
