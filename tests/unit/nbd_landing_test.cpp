// Where writes come in: what has landed stays as it is until its write is done, and whatever there is no buffer for
// still arrives whole.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/nbd_conversation.hpp"

namespace tarn::nbd {
namespace {

constexpr size_t payload_size = LandingBuffers::payload_min;

class LandingBuffersTest : public testing::Test {
  protected:
    // Of what the current buffer has at an offset, count bytes are the beginning of such a payload.
    LandingBuffers::Landed keep(size_t offset, size_t count, size_t size = payload_size) {
        return landing_.keep(landing_.current().subspan(offset, count), size);
    }
    std::vector<std::byte> memory_ = std::vector<std::byte>(LandingBuffers::size_bytes);
    LandingBuffers landing_{memory_};
};

TEST_F(LandingBuffersTest, a_payload_stays_where_it_began) {
    const std::span<std::byte> first = landing_.current();
    const LandingBuffers::Landed landed = keep(1000, 10);
    ASSERT_TRUE(landed);
    EXPECT_EQ(landed.payload().data(), first.data() + 1000);
    EXPECT_EQ(landed.payload().size(), payload_size);
}

TEST_F(LandingBuffersTest, nobody_else_receives_into_the_buffer_of_a_payload) {
    std::vector<LandingBuffers::Landed> all;
    std::vector<std::span<std::byte>> buffers{landing_.current()};
    while (LandingBuffers::Landed landed = keep(0, 0)) {
        all.push_back(std::move(landed));
        for (const std::span<std::byte> buffer : buffers) {
            EXPECT_TRUE(landing_.current().data() >= buffer.data() + buffer.size() ||
                        landing_.current().data() + landing_.current().size() <= buffer.data());
        }
        buffers.push_back(landing_.current());
    }
    EXPECT_EQ(all.size(), LandingBuffers::buffers - 1) << "one is left for who receives";
    for (const std::span<std::byte> buffer : buffers) EXPECT_EQ(buffer.size(), LandingBuffers::buffer_size_bytes);
}

TEST_F(LandingBuffersTest, a_buffer_comes_back_at_the_end_of_its_write) {
    for (size_t i = 0; i < 5 * LandingBuffers::buffers; ++i) {
        LandingBuffers::Landed landed = keep(0, 1);
        ASSERT_TRUE(landed) << i;
        LandingBuffers::Landed moved = std::move(landed);
        EXPECT_FALSE(landed);
        if (i % 2 == 0) moved = {};
    }
}

TEST_F(LandingBuffersTest, what_lies_elsewhere_or_has_no_room_is_not_kept) {
    const std::span<std::byte> first = landing_.current();
    constexpr size_t size = LandingBuffers::buffer_size_bytes;
    EXPECT_FALSE(keep(0, 100, payload_size - 1)) << "its copy is cheap";
    EXPECT_FALSE(keep(size - payload_size + 1, 100));
    EXPECT_FALSE(keep(0, 100, size + 1));
    EXPECT_FALSE(keep(size, 0));
    EXPECT_EQ(landing_.current().data(), first.data());
    {
        const LandingBuffers::Landed all = keep(size - payload_size, 100);
        ASSERT_TRUE(all);
        EXPECT_FALSE(landing_.keep(first.first(10), payload_size)) << "that is another's";
    }
    const std::vector<std::byte> elsewhere(payload_size);
    EXPECT_FALSE(landing_.keep(std::span(elsewhere).first(10), payload_size));
}

class NbdLanding : public NbdConnection {
  protected:
    void SetUp() override {
        NbdConnection::SetUp();
        volumes_.faults.on_write = [this](std::span<const std::byte> from) { writes_.push_back(from); };
    }
    bool has_landed(std::span<const std::byte> bytes) const {
        const std::span<const std::byte> memory(workspace_.own_memory);
        return bytes.data() >= memory.data() && bytes.data() + bytes.size() <= memory.data() + memory.size();
    }
    // Each 64 KiB of other bytes; all are read at the end.
    static Bytes writes(uint64_t count) {
        Bytes requests;
        for (uint64_t i = 0; i < count; ++i)
            requests.request(Command::write, i, i * size, size).fill(size, std::byte(i + 1));
        return requests;
    }
    void expect_written(uint64_t count) {
        EXPECT_EQ(answers().size(), count * simple_reply_size);
        volumes_.faults.miss_every = 0;
        std::vector<std::byte> bytes(size);
        for (uint64_t i = 0; i < count; ++i) {
            ASSERT_TRUE(disk_->try_read(i * size, bytes));
            EXPECT_EQ(std::ranges::count(bytes, std::byte(i + 1)), static_cast<std::ptrdiff_t>(size)) << i;
        }
    }
    static constexpr uint32_t size = 64 << 10;
    std::vector<std::span<const std::byte>> writes_;
};

TEST_F(NbdLanding, a_write_that_comes_in_parts_is_written_from_where_it_landed) {
    run(writes(10), 5000);
    expect_written(10);
    ASSERT_EQ(writes_.size(), 10u);
    EXPECT_TRUE(std::ranges::all_of(writes_, [&](std::span<const std::byte> bytes) { return has_landed(bytes); }));
}

TEST_F(NbdLanding, a_write_for_which_no_buffer_is_left_is_written_all_the_same) {
    std::vector<LandingBuffers::Landed> taken;
    while (auto landed = workspace_.landing.keep(workspace_.landing.current().first(1), size))
        taken.push_back(std::move(landed));
    run(writes(10), 5000);
    expect_written(10);
    EXPECT_FALSE(has_landed(writes_.front()));
    EXPECT_EQ(share_.held_bytes(), 0u);
}

TEST_F(NbdLanding, a_write_that_has_landed_and_has_to_wait_is_copied_and_lets_its_buffer_go) {
    volumes_.faults.miss_every = 1;
    volumes_.faults.cold_delay_us = 100;
    run(writes(10), 5000);
    expect_written(10);
    std::vector<LandingBuffers::Landed> all;
    while (auto landed = workspace_.landing.keep(workspace_.landing.current().first(1), size))
        all.push_back(std::move(landed));
    EXPECT_EQ(all.size(), LandingBuffers::buffers - 1);
    EXPECT_EQ(share_.held_bytes(), 0u);
}

TEST_F(NbdLanding, a_client_that_leaves_in_the_middle_of_a_write_leaves_its_buffer) {
    run(Bytes().request(Command::write, 1, 0, size).fill(size - 1, std::byte{1}), 5000);
    EXPECT_TRUE(answers().empty());
    EXPECT_TRUE(writes_.empty());
    EXPECT_TRUE(workspace_.landing.keep(workspace_.landing.current().first(1), size));
    EXPECT_EQ(share_.held_bytes(), 0u);
}

// Of a write that is on its way its shard holds as much as if it was copied: so a limit bounds these, too.
TEST_F(NbdLanding, what_has_landed_counts_as_held) {
    run(writes(3), 5000);
    expect_written(3);
    EXPECT_GE(held_bytes_seen_, size);
    EXPECT_EQ(share_.held_bytes(), 0u);
}

}  // namespace
}  // namespace tarn::nbd
