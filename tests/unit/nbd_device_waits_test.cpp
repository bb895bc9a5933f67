// A device's connection whose requests wait, for another host or for each other: what does not wait for them goes on,
// and who hangs up is noticed.
#include "tests/unit/nbd_device_talk.hpp"
#include "utils/alarm.hpp"

namespace tarn::nbd {
namespace {

using namespace std::chrono_literals;

using NbdDeviceWaits = NbdDeviceTalk;

// The host that has its first page is away, until that is told; and the one with the volume's size, if so said.
class PartlyAwayVolume final : public SharedVolume {
  public:
    using SharedVolume::SharedVolume;
    std::optional<uint64_t> try_size() override {
        return is_size_away ? std::nullopt : std::optional<uint64_t>(SharedVolume::size_bytes);
    }
    Task<Result<uint64_t>> size() override {
        if (!co_await comes_back(is_size_away)) co_return fail(Errc::cancelled);
        co_return SharedVolume::size_bytes;
    }
    bool try_write(uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts) override {
        return offset_bytes != 0 && SharedVolume::try_write(offset_bytes, from, receipts);
    }
    Task<Result<>> write(uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts) override {
        if (offset_bytes == 0 && !co_await comes_back(is_page_away)) co_return fail(Errc::cancelled);
        co_return co_await SharedVolume::write(offset_bytes, from, receipts);
    }
    void set(bool& is_away, bool value) {
        is_away = value;
        changed.notify_all();
    }

    bool is_page_away = true;
    bool is_size_away = false;
    size_t waiting = 0;
    Event changed;

  private:
    // False: nobody waits for it any more.
    Task<bool> comes_back(bool& is_away) {
        Interrupt* const interrupt = co_await this_interrupt;
        const Interrupt::Listener listener(interrupt, [&] { changed.notify_all(); });
        ++waiting;
        changed.notify_all();
        while (is_away && !(interrupt && interrupt->raised())) co_await changed.wait();
        --waiting;
        changed.notify_all();
        co_return !is_away;
    }
};

TEST_F(NbdDeviceWaits, a_kernel_that_hangs_up_is_noticed_while_the_log_is_full) {
    const auto volume = std::make_shared<PartlyAwayVolume>(bytes_.bytes(), 1);
    const auto how = serve(volume, [&](DeviceConnection&) -> Task<> {
        Bytes requests;
        for (size_t i = 0; i < DeviceLog::slot_count; ++i)
            requests.request(Command::write, i, 0, page_size).fill(page_size);
        co_await send(requests);
        while (volume->waiting < DeviceLog::slot_count) co_await volume->changed.wait();
        kernel_.reset();
    });
    EXPECT_EQ(how, DeviceConnection::End::lost);
    EXPECT_EQ(volume->waiting, 0u);
}

TEST_F(NbdDeviceWaits, a_kernel_that_hangs_up_is_noticed_while_the_size_is_not_known) {
    for (const bool at_once : {true, false}) {
        const auto volume = std::make_shared<PartlyAwayVolume>(bytes_.bytes(), 1);
        volume->is_size_away = at_once;
        const auto how = serve(volume, [&](DeviceConnection&) -> Task<> {
            if (!at_once) {
                co_await send(Bytes().request(Command::flush, 1, 0, 0));
                EXPECT_EQ(co_await answer_to(1), Errno::none);
                volume->set(volume->is_size_away, true);
                co_await send(Bytes().request(Command::flush, 2, 0, 0));
            }
            while (volume->waiting == 0) co_await volume->changed.wait();
            ::shutdown(kernel_.get(), SHUT_RDWR);
        });
        EXPECT_EQ(how, DeviceConnection::End::lost);
        SetUp();
    }
}

// Its end of the socket stays open: nothing else tells those who wait.
TEST_F(NbdDeviceWaits, a_kernel_that_disconnects_does_not_wait_for_what_waits) {
    const auto volume = std::make_shared<PartlyAwayVolume>(bytes_.bytes(), 1);
    const auto how = serve(volume, [&](DeviceConnection&) -> Task<> {
        Alarm alarm(*loop_, 10s, [&] {
            ADD_FAILURE() << "its connection waits for the other host";
            volume->set(volume->is_page_away, false);
        });
        co_await send(Bytes().request(Command::write, 1, 0, page_size).fill(page_size));
        while (volume->waiting == 0) co_await volume->changed.wait();
        co_await send(Bytes().request(Command::disconnect, 2, 0, 0));
        while (volume->waiting > 0) co_await volume->changed.wait();
        co_await alarm.end();
    });
    EXPECT_EQ(how, DeviceConnection::End::disconnected);
}

TEST_F(NbdDeviceWaits, a_write_that_waits_stops_none_behind_it_and_keeps_its_bytes) {
    constexpr size_t others = 3 * DeviceLog::ring_size_bytes / page_size;
    const auto volume = std::make_shared<PartlyAwayVolume>(bytes_.bytes(), 1);
    serve(volume, [&](DeviceConnection&) -> Task<> {
        Alarm alarm(*loop_, 20s, [&] {
            ADD_FAILURE() << "they wait for the first one";
            ::shutdown(kernel_.get(), SHUT_RDWR);
        });
        co_await send(Bytes().request(Command::write, 0, 0, page_size).fill(page_size, std::byte{9}));
        for (size_t i = 1; i <= others && !HasFailure(); ++i) {
            co_await send(Bytes().request(Command::write, i, page_size, page_size).fill(page_size, std::byte{5}));
            EXPECT_EQ(co_await answer_to(i), Errno::none);
        }
        co_await alarm.end();
        EXPECT_EQ(bytes_.bytes()[100], std::byte{0});
        volume->set(volume->is_page_away, false);
        EXPECT_EQ(co_await answer_to(0), Errno::none);
        kernel_.reset();
    });
    EXPECT_EQ(bytes_.bytes()[100], std::byte{9});
}

TEST_F(NbdDeviceWaits, more_requests_than_the_log_has_room_for_wait_in_the_socket) {
    constexpr size_t count = DeviceLog::slot_count + 50;
    const auto volume = std::make_shared<PartlyAwayVolume>(bytes_.bytes(), 1);
    serve(volume, [&](DeviceConnection&) -> Task<> {
        Gate sending;
        Bytes requests;
        for (size_t i = 0; i < count; ++i) requests.request(Command::write, i, 0, page_size).fill(page_size);
        sending.spawn(send(requests));
        while (volume->waiting < DeviceLog::slot_count) co_await volume->changed.wait();
        volume->set(volume->is_page_away, false);
        std::vector<bool> answered(count);
        for (size_t i = 0; i < count && !HasFailure(); ++i) {
            std::byte bytes[16];
            EXPECT_EQ((co_await loop_->receive(kernel_.get(), bytes, MSG_WAITALL)).value_or(0), sizeof bytes);
            answered.at(load_big<uint64_t>(bytes + 8)) = true;
        }
        EXPECT_EQ(std::ranges::count(answered, true), static_cast<ptrdiff_t>(count));
        co_await sending.close();
        kernel_.reset();
    });
}

TEST_F(NbdDeviceWaits, a_request_that_had_to_wait_for_room_in_the_log_is_served_though_nothing_more_comes) {
    constexpr size_t count = DeviceLog::slot_count + 1;
    const auto volume = std::make_shared<PartlyAwayVolume>(bytes_.bytes(), 1);
    serve(volume, [&](DeviceConnection&) -> Task<> {
        Alarm alarm(*loop_, 10s, [&] {
            ADD_FAILURE() << "one is not answered";
            ::shutdown(kernel_.get(), SHUT_RDWR);
        });
        Bytes requests;
        for (size_t i = 0; i < count; ++i) requests.request(Command::write, i, 0, 512).fill(512);
        co_await send(requests);
        while (volume->waiting < DeviceLog::slot_count) co_await volume->changed.wait();
        volume->set(volume->is_page_away, false);
        for (size_t i = 0; i < count && !HasFailure(); ++i) {
            std::byte bytes[16];
            EXPECT_EQ((co_await loop_->receive(kernel_.get(), bytes, MSG_WAITALL)).value_or(0), sizeof bytes);
        }
        co_await alarm.end();
        kernel_.reset();
    });
}

class NbdDeviceParking : public NbdDevice {
  protected:
    // A write of so many bytes, all of this value, as it was received.
    uint16_t add(DeviceLog& log, uint32_t size, std::byte value) {
        const Bytes bytes = Bytes().request(Command::write, 1, 0, size).fill(size, value);
        std::span<const std::byte> rest = bytes.bytes();
        while (!rest.empty()) {
            const ssize_t sent = ::send(kernel_.get(), rest.data(), rest.size(), MSG_DONTWAIT);
            EXPECT_TRUE(sent > 0 || errno == EAGAIN);
            if (sent > 0) rest = rest.subspan(static_cast<size_t>(sent));
            while (log.receive(daemon_.get()) > 0) {
            }
        }
        return *log.add(*decode_request(log.unparsed().first<request_size>()), size);
    }
    static bool is_all(std::span<const std::byte> bytes, std::byte value) {
        return std::ranges::all_of(bytes, [&](std::byte each) { return each == value; });
    }
    DeviceLog begin() { return {memory_->log(0), memory_->first_receipt(0)}; }

    static constexpr uint32_t large = DeviceLog::parking_size_bytes / 2;
};

TEST_F(NbdDeviceParking, what_is_parked_makes_room_and_is_found_by_the_next_process) {
    DeviceLog log = begin();
    const uint16_t slot = add(log, large, std::byte{7});
    log.park(slot);
    const uint16_t small = add(log, page_size, std::byte{3});
    log.finish(small, Errno::none);
    for (int i = 0; i < 4; ++i) log.finish(add(log, large, std::byte{1}), Errno::none);
    EXPECT_TRUE(is_all(log.payload(slot), std::byte{7}));
    DeviceLog next = begin();
    EXPECT_TRUE(is_all(next.payload(slot), std::byte{7}));
    const uint16_t other = add(next, large, std::byte{4});
    next.park(other);
    EXPECT_TRUE(is_all(next.payload(slot), std::byte{7})) << "its place was given away";
    EXPECT_TRUE(is_all(next.payload(other), std::byte{4}));
}

TEST_F(NbdDeviceParking, what_finds_no_place_stays_in_the_ring_and_nothing_lies_over_it) {
    DeviceLog log = begin();
    log.park(add(log, large, std::byte{1}));
    log.park(add(log, large, std::byte{2}));
    const uint16_t third = add(log, large / 2, std::byte{3});
    log.park(third);
    const uint16_t fourth = add(log, large / 2, std::byte{4});
    log.park(fourth);
    const std::vector<std::byte> more(16 * page_size, std::byte{5});
    for (size_t sent = 0; sent < 2 * DeviceLog::ring_size_bytes && !log.is_full(); sent += more.size()) {
        ASSERT_EQ(::send(kernel_.get(), more.data(), more.size(), 0), static_cast<ssize_t>(more.size()));
        log.receive(daemon_.get());
    }
    EXPECT_TRUE(log.is_full());
    EXPECT_TRUE(is_all(log.payload(third), std::byte{3}));
    EXPECT_TRUE(is_all(log.payload(fourth), std::byte{4}));
}

TEST_F(NbdDeviceParking, a_place_is_used_again_and_the_memory_given_back_once_nothing_is_parked) {
    DeviceLog log = begin();
    const uint16_t first = add(log, large, std::byte{1});
    log.park(first);
    const uint16_t second = add(log, large, std::byte{2});
    log.park(second);
    log.finish(first, Errno::none);
    const uint16_t third = add(log, large, std::byte{3});
    log.park(third);
    log.finish(second, Errno::none);
    EXPECT_TRUE(is_all(log.payload(third), std::byte{3}));
    EXPECT_TRUE(is_all(std::span(memory_->log(0).parking).first(large), std::byte{3}));
    log.finish(third, Errno::none);
    EXPECT_TRUE(is_all(memory_->log(0).parking, std::byte{0}));
    const uint16_t fourth = add(log, large, std::byte{4});
    log.park(fourth);
    EXPECT_TRUE(is_all(log.payload(fourth), std::byte{4}));
}

}  // namespace
}  // namespace tarn::nbd
