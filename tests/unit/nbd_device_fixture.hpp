// What the tests of a device's connection share: a volume and a memory that outlive processes, and the two ends of a
// socket between the kernel and the daemon, both of which a test plays.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "frontends/nbd/device_connection.hpp"
#include "frontends/nbd/device_memory.hpp"
#include "tests/support/fake_volume.hpp"
#include "tests/support/nbd_bytes.hpp"

namespace tarn::nbd {

// A volume whose bytes outlive the process. Many accesses miss, and take a while page by page.
class SharedVolume : public FakeVolume {
  public:
    // What was being written when the process was killed, as the arena has it.
    struct Stage {
        std::atomic<bool> is_pending;
        uint64_t offset_bytes;
        uint64_t receipt;
        std::byte bytes[page_size];
    };

    SharedVolume(std::span<std::byte> memory, unsigned seed)
        : bytes_(memory.first(size_bytes)),
          stage_(reinterpret_cast<Stage*>(memory.data() + size_bytes)),
          random_(seed) {}
    void adopt(const DeviceMemory& memory) {
        if (!stage_->is_pending.load()) return;
        std::memcpy(bytes_.data() + stage_->offset_bytes, stage_->bytes, page_size);
        memory.add_receipts(std::array{stage_->receipt});
        stage_->is_pending.store(false);
    }

    std::optional<uint64_t> try_size() override {
        return random_() % 16 == 0 ? std::nullopt : std::optional(size_bytes);
    }
    Task<Result<uint64_t>> size() override {
        co_await Yield(*Loop::current());
        co_return size_bytes;
    }
    bool try_pin(uint64_t offset_bytes, uint32_t size, std::vector<Pin>& pins) override {
        if (random_() % miss_every == 0) return false;
        for (uint32_t done = 0; done < size;) {
            const uint64_t at = offset_bytes + done;
            const auto part = static_cast<uint32_t>(std::min<uint64_t>(page_size - at % page_size, size - done));
            pins.push_back({.bytes = bytes_.data() + at, .size_bytes = part, .frame = 0});
            done += part;
            ++pins_;
        }
        return true;
    }
    void unpin(std::span<const Pin> pins) override { pins_ -= pins.size(); }
    bool try_write(uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts) override {
        TARN_ASSERT(pins_ == 0);  // a pinned page must not change
        if (random_() % miss_every == 0) return false;
        for (uint64_t page = 0; page * page_size < from.size(); ++page) write_page(page, offset_bytes, from, receipts);
        return true;
    }
    Task<Result<>> write(uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts) override {
        std::vector<uint64_t> pages(from.size() / page_size);
        for (uint64_t page = 0; page < pages.size(); ++page) pages[page] = page;
        std::ranges::shuffle(pages, random_);
        for (const uint64_t page : pages) {
            if (receipts->has(page)) continue;
            co_await take_a_while();
            write_page(page, offset_bytes, from, receipts);
        }
        co_await take_a_while();
        co_return Result<>{};
    }
    Task<Result<>> fetch(uint64_t, uint64_t) override {
        co_await take_a_while();
        co_return Result<>{};
    }
    Task<Result<>> read(uint64_t offset_bytes, std::span<std::byte> into) override {
        co_await take_a_while();
        std::memcpy(into.data(), bytes_.data() + offset_bytes, into.size());
        co_return Result<>{};
    }
    Task<Result<>> flush() override {
        co_await take_a_while();
        co_return Result<>{};
    }

    static constexpr uint64_t block_count = 64;
    static constexpr uint64_t size_bytes = block_count * page_size;
    static constexpr uint64_t memory_size_bytes = size_bytes + 2 * page_size;
    unsigned miss_every = 3;

  private:
    void write_page(uint64_t page, uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts) {
        TARN_ASSERT(pins_ == 0);
        Stage& stage = *stage_;
        std::memcpy(stage.bytes, from.data() + page * page_size, page_size);
        stage.offset_bytes = offset_bytes + page * page_size;
        stage.receipt = PageReceipt(receipts, page).name();
        stage.is_pending.store(true, std::memory_order_release);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        std::memcpy(bytes_.data() + stage.offset_bytes, stage.bytes, page_size);
        receipts->add(page);
        stage.is_pending.store(false, std::memory_order_release);
    }
    Task<> take_a_while() {
        if (random_() % 2 == 0) co_return;
        co_await Loop::current()->sleep(std::chrono::microseconds(random_() % 500));
    }

    const std::span<std::byte> bytes_;
    Stage* const stage_;
    std::minstd_rand random_;
    size_t pins_ = 0;
};

class NbdDevice : public testing::Test {
  protected:
    void SetUp() override {
        const UniqueFd file(::memfd_create("volume", MFD_CLOEXEC));
        ASSERT_EQ(::ftruncate(file.get(), SharedVolume::memory_size_bytes), 0);
        bytes_ = std::move(*Mapping::create(SharedVolume::memory_size_bytes, file.get()));
        memory_.emplace(std::move(*DeviceMemory::create({.connections = 1, .index = 3}, "disk")));
        int pair[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        kernel_ = UniqueFd(pair[0]);
        daemon_ = UniqueFd(pair[1]);
    }

    Mapping bytes_;
    std::optional<DeviceMemory> memory_;
    UniqueFd kernel_;
    UniqueFd daemon_;
};

}  // namespace tarn::nbd
