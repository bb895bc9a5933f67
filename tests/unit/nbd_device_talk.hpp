// What the tests share that have a device's connection and its kernel in one process.
#pragma once

#include "tests/unit/nbd_device_fixture.hpp"

namespace tarn::nbd {

// One process, and a kernel that is a task of the same loop.
class NbdDeviceTalk : public NbdDevice {
  protected:
    using Talk = std::function<Task<>(DeviceConnection&)>;

    // Serves until the talk is over and the connection has ended.
    DeviceConnection::End serve(std::shared_ptr<SharedVolume> volume, const Talk& talk) {
        const Settings settings;
        Newcomers newcomers(1);
        Share share(size_t{16} << 20);
        Workspace workspace(*loop_, share, settings, newcomers);
        DeviceConnection connection(workspace, std::move(volume), exported_, UniqueFd(::dup(daemon_.get())),
                                    memory_->log(0), memory_->first_receipt(0), {.address = {}, .text = "a device"},
                                    [this] { ++resized_; });
        auto how = DeviceConnection::End::stopped;
        const auto run = [&]() -> Task<> {
            Gate talking;
            talking.spawn(talk(connection));
            how = co_await connection.serve();
            co_await talking.close();
        };
        loop_->run_until_done(run());
        return how;
    }
    DeviceConnection::End serve(const Talk& talk) {
        return serve(std::make_shared<SharedVolume>(bytes_.bytes(), 1), talk);
    }
    Task<> send(const Bytes& bytes) {
        std::span<const std::byte> rest = bytes.bytes();
        while (!rest.empty()) {
            const Result<size_t> count = co_await loop_->send(kernel_.get(), rest);
            if (!count) co_return ADD_FAILURE();
            rest = rest.subspan(*count);
        }
    }
    // The error of the next answer, which is to this request and has so many bytes.
    Task<Errno> answer_to(uint64_t cookie, size_t data_bytes = 0) {
        std::vector<std::byte> bytes(16 + data_bytes);
        const Result<size_t> count = co_await loop_->receive(kernel_.get(), bytes, MSG_WAITALL);
        EXPECT_EQ(count.value_or(0), bytes.size());
        EXPECT_EQ(load_big<uint64_t>(bytes.data() + 8), cookie);
        co_return static_cast<Errno>(load_big<uint32_t>(bytes.data() + 4));
    }

    std::unique_ptr<Loop> loop_ = std::move(*Loop::create());
    Export exported_;
    unsigned resized_ = 0;  // how often it has said so
};

}  // namespace tarn::nbd
