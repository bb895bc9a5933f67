// What the kernel's requests ask of the volume, and that what is to be durable is answered no sooner.
#include <fmt/format.h>

#include <string>

#include "tests/unit/nbd_device_talk.hpp"

namespace tarn::nbd {
namespace {

using NbdDeviceCommands = NbdDeviceTalk;
using Asked = std::vector<std::string>;

// Writes down what it is asked for. Its flushes end when they may.
class HeardVolume final : public SharedVolume {
  public:
    using SharedVolume::SharedVolume;
    bool try_write(uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts*) override {
        if (is_cold) return false;
        note(fmt::format("try_write {} {}", offset_bytes, from.size()));
        return true;
    }
    Task<Result<>> write(uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts) override {
        EXPECT_NE(receipts, nullptr);
        note(fmt::format("write {} {}", offset_bytes, from.size()));
        co_return Result<>{};
    }
    Task<Result<>> zero(uint64_t offset_bytes, uint64_t size, bool keep_space, WriteReceipts* receipts) override {
        EXPECT_NE(receipts, nullptr);
        note(fmt::format("zero {} {}{}", offset_bytes, size, keep_space ? " keep_space" : ""));
        co_return Result<>{};
    }
    Task<Result<>> flush() override {
        note("flush");
        return wait_for_flush();
    }
    Task<Result<>> flush_range(uint64_t offset_bytes, uint64_t size, bool attributes) override {
        note(fmt::format("flush_range {} {}{}", offset_bytes, size, attributes ? " attributes" : ""));
        return wait_for_flush();
    }
    Task<Result<>> prefetch(uint64_t offset_bytes, uint64_t size) override {
        note(fmt::format("prefetch {} {}", offset_bytes, size));
        co_return Result<>{};
    }
    // Since the last call.
    Asked take_asked() { return std::exchange(asked_, {}); }
    void let_flushes_end() {
        flushes_end = true;
        changed.notify_all();
    }

    bool is_cold = false;
    bool flushes_end = true;
    Result<> flushed;
    size_t waiting = 0;
    Event changed;

  private:
    void note(std::string what) { asked_.push_back(std::move(what)); }
    Task<Result<>> wait_for_flush() {
        ++waiting;
        while (!flushes_end) co_await changed.wait();
        --waiting;
        co_return flushed;
    }

    Asked asked_;
};

TEST_F(NbdDeviceCommands, each_reaches_the_volume_with_its_range_and_flags) {
    constexpr uint32_t offset = 3 * page_size;
    constexpr uint32_t size = 2 * page_size;
    const struct {
        Command command;
        uint16_t flags;
        Asked asked;
    } cases[] = {
        {Command::flush, 0, {"flush"}},
        {Command::trim, 0, {"zero 12288 8192"}},
        {Command::trim, request_fua, {"zero 12288 8192", "flush"}},
        {Command::write_zeroes, 0, {"zero 12288 8192"}},
        {Command::write_zeroes, request_no_hole, {"zero 12288 8192 keep_space"}},
        {Command::write_zeroes, request_fua, {"zero 12288 8192", "flush"}},
        {Command::write_zeroes, request_no_hole | request_fua, {"zero 12288 8192 keep_space", "flush"}},
        {Command::cache, 0, {"prefetch 12288 8192"}},
    };
    const auto volume = std::make_shared<HeardVolume>(bytes_.bytes(), 1);
    serve(volume, [&](DeviceConnection&) -> Task<> {
        uint64_t cookie = 0;
        for (const auto& [command, flags, asked] : cases) {
            const bool has_range = command != Command::flush;
            co_await send(Bytes().request(command, ++cookie, has_range ? offset : 0, has_range ? size : 0, flags));
            EXPECT_EQ(co_await answer_to(cookie), Errno::none);
            EXPECT_EQ(volume->take_asked(), asked) << "case " << cookie;
        }
        kernel_.reset();
    });
}

// Whether its pages are at hand or not.
TEST_F(NbdDeviceCommands, a_write_is_flushed_if_it_says_so) {
    const auto volume = std::make_shared<HeardVolume>(bytes_.bytes(), 1);
    serve(volume, [&](DeviceConnection&) -> Task<> {
        const auto asked_by_a_write = [&](bool is_cold, uint16_t flags) -> Task<Asked> {
            volume->is_cold = is_cold;
            co_await send(Bytes().request(Command::write, 1, page_size, 2 * page_size, flags).fill(2 * page_size));
            EXPECT_EQ(co_await answer_to(1), Errno::none);
            co_return volume->take_asked();
        };
        EXPECT_EQ(co_await asked_by_a_write(false, 0), Asked{"try_write 4096 8192"});
        EXPECT_EQ(co_await asked_by_a_write(true, 0), Asked{"write 4096 8192"});
        for (const bool is_cold : {false, true})
            EXPECT_EQ(co_await asked_by_a_write(is_cold, request_fua),
                      (Asked{"write 4096 8192", "flush_range 4096 8192"}));
        kernel_.reset();
    });
}

// What comes behind it would be answered second, if it did not wait.
TEST_F(NbdDeviceCommands, what_is_to_be_durable_is_answered_when_its_flush_has_ended) {
    const auto volume = std::make_shared<HeardVolume>(bytes_.bytes(), 1);
    serve(volume, [&](DeviceConnection&) -> Task<> {
        for (const Command command : {Command::write, Command::trim, Command::write_zeroes, Command::flush}) {
            for (const Errno error : {Errno::none, Errno::io}) {
                volume->flushes_end = false;
                volume->flushed = error == Errno::none ? Result<>{} : fail(Errc::io, 0, "played");
                Bytes requests = command == Command::flush ? Bytes().request(command, 1, 0, 0)
                                                           : Bytes().request(command, 1, 0, page_size, request_fua);
                if (command == Command::write) requests.fill(page_size);
                co_await send(requests.request(Command::cache, 2, 0, page_size));
                EXPECT_EQ(co_await answer_to(2), Errno::none);
                EXPECT_EQ(volume->waiting, 1u);
                volume->let_flushes_end();
                EXPECT_EQ(co_await answer_to(1), error);
            }
        }
        kernel_.reset();
    });
}

}  // namespace
}  // namespace tarn::nbd
