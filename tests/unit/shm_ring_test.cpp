// The rings of shared memory, and what the process at the other end may do to them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <random>
#include <thread>

#include "coherence/fabric/transport/shm/segment.hpp"

namespace tarn {
namespace {

class ShmRing : public testing::Test {
  protected:
    static std::vector<std::byte> numbers(uint64_t first, size_t count) {
        std::vector<std::byte> bytes(count);
        for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((first + i) % 251);
        return bytes;
    }
    RingWords& words() const { return *segment_->outgoing().words; }

    std::unique_ptr<Segment> segment_ = std::move(*Segment::create());
    std::unique_ptr<Segment> other_ = std::move(*Segment::adopt(UniqueFd(::fcntl(segment_->fd(), F_DUPFD_CLOEXEC, 0))));
    RingWriter writer_{segment_->outgoing()};
    RingReader reader_{other_->incoming()};
};

TEST_F(ShmRing, bytes_come_whole_and_in_order_also_over_its_end) {
    std::mt19937 random(1);
    uint64_t written = 0;
    uint64_t taken = 0;
    while (taken < 5 * Segment::ring_bytes) {
        const size_t count = 1 + random() % (random() % 8 == 0 ? Segment::ring_bytes : 5000);
        written += writer_.write(numbers(written, count));
        const std::span<const std::byte> bytes = reader_.bytes();
        ASSERT_EQ(bytes.size(), written - taken);
        const size_t take = random() % (bytes.size() + 1);
        const std::vector<std::byte> expected = numbers(taken, take);
        ASSERT_TRUE(take == 0 || std::memcmp(bytes.data(), expected.data(), take) == 0);
        reader_.take(take);
        taken += take;
    }
}

TEST_F(ShmRing, a_full_one_takes_nothing_until_some_is_taken) {
    EXPECT_EQ(writer_.write(numbers(0, Segment::ring_bytes + 1)), Segment::ring_bytes);
    EXPECT_EQ(writer_.write(numbers(0, 1)), 0u);
    EXPECT_EQ(reader_.bytes().size(), Segment::ring_bytes);
    reader_.take(3);
    EXPECT_EQ(writer_.write(numbers(Segment::ring_bytes, 5)), 3u);
    EXPECT_EQ(reader_.bytes().size(), Segment::ring_bytes);
    EXPECT_FALSE(writer_.is_broken() || reader_.is_broken());
}

TEST_F(ShmRing, a_position_that_makes_no_sense_breaks_it) {
    (void)writer_.write(numbers(0, 100));
    ASSERT_EQ(reader_.bytes().size(), 100u);
    for (const uint64_t lie : {uint64_t{99}, Segment::ring_bytes + 1, ~uint64_t{0}}) {
        RingReader reader(other_->incoming());
        words().written = 100;
        ASSERT_EQ(reader.bytes().size(), 100u);
        words().written = lie;
        EXPECT_TRUE(reader.bytes().empty());
        EXPECT_TRUE(reader.is_broken());
        words().written = 100;
        EXPECT_TRUE(reader.bytes().empty()) << "for good";
    }
    for (const uint64_t lie : {uint64_t{101}, ~uint64_t{0}}) {
        RingWriter writer(segment_->outgoing());
        words().taken = 0;
        ASSERT_EQ(writer.write(numbers(0, 100)), 100u);
        words().taken = lie;
        EXPECT_EQ(writer.room(Segment::ring_bytes), 0u);
        EXPECT_TRUE(writer.is_broken());
    }
    RingWriter writer(segment_->outgoing());
    words().taken = 0;
    ASSERT_EQ(writer.write(numbers(0, 100)), 100u);
    words().taken = 50;
    EXPECT_EQ(writer.room(Segment::ring_bytes), Segment::ring_bytes - 50);
    words().taken = 49;
    EXPECT_EQ(writer.room(Segment::ring_bytes), 0u) << "it took back what it had taken";
}

TEST_F(ShmRing, who_waits_is_woken_once) {
    EXPECT_TRUE(reader_.begin_wait(0));
    EXPECT_FALSE(writer_.must_wake_reader() && writer_.must_wake_reader());
    ASSERT_EQ(writer_.write(numbers(0, 8)), 8u);
    EXPECT_FALSE(reader_.begin_wait(0)) << "there is something";
    EXPECT_TRUE(reader_.begin_wait(8)) << "but nothing more";
    reader_.end_wait();
    EXPECT_FALSE(writer_.must_wake_reader());
    (void)writer_.write(numbers(8, Segment::ring_bytes));
    EXPECT_TRUE(writer_.begin_wait());
    ASSERT_GT(reader_.bytes().size(), 0u);
    reader_.take(1);
    EXPECT_TRUE(reader_.must_wake_writer());
    EXPECT_FALSE(reader_.must_wake_writer());
    EXPECT_FALSE(writer_.begin_wait()) << "there is room";
}

// Both sides announce that they sleep, and look once more; who has changed something looks for sleepers.
TEST_F(ShmRing, no_wake_up_is_lost_between_two_threads) {
    constexpr uint64_t total = 64 * Segment::ring_bytes;
    std::atomic<uint32_t> reader_wakes{0};
    std::atomic<uint32_t> writer_wakes{0};
    std::jthread reads([&] {
        uint32_t seen = 0;
        for (uint64_t taken = 0; taken < total;) {
            const std::span<const std::byte> bytes = reader_.bytes();
            if (bytes.empty()) {
                if (reader_.begin_wait(0)) reader_wakes.wait(seen);
                seen = reader_wakes;
                reader_.end_wait();
                continue;
            }
            ASSERT_EQ(bytes.front(), static_cast<std::byte>(taken % 251));
            ASSERT_EQ(bytes.back(), static_cast<std::byte>((taken + bytes.size() - 1) % 251));
            taken += bytes.size();
            reader_.take(bytes.size());
            if (!reader_.must_wake_writer()) continue;
            ++writer_wakes;
            writer_wakes.notify_one();
        }
    });
    uint32_t seen = 0;
    const std::vector<std::byte> bytes = numbers(0, 251 * 64);
    for (uint64_t written = 0; written < total;) {
        const size_t from = written % 251;
        const size_t count =
            writer_.write(std::span(bytes).subspan(from, std::min(bytes.size() - from, total - written)));
        written += count;
        if (count > 0 && writer_.must_wake_reader()) {
            ++reader_wakes;
            reader_wakes.notify_one();
        }
        if (count > 0) continue;
        if (writer_.begin_wait()) writer_wakes.wait(seen);
        seen = writer_wakes;
        writer_.end_wait();
    }
}

TEST(ShmSegment, memory_whose_size_may_change_or_is_another_is_refused) {
    const auto refusal = [](UniqueFd memory) {
        const auto adopted = Segment::adopt(std::move(memory));
        return adopted ? std::string() : std::string(adopted.error().where);
    };
    const std::unique_ptr<Segment> made = std::move(*Segment::create());
    const auto size = ::lseek(made->fd(), 0, SEEK_END);
    const auto memory = [](off_t of, int seals) {
        UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        EXPECT_EQ(::ftruncate(fd.get(), of), 0);
        EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
        return fd;
    };
    EXPECT_EQ(refusal(memory(size, F_SEAL_SHRINK | F_SEAL_GROW)), "");
    EXPECT_EQ(refusal(memory(size, F_SEAL_SHRINK)), "fabric.shm: the memory's size is not sealed");
    EXPECT_EQ(refusal(memory(size, F_SEAL_GROW)), "fabric.shm: the memory's size is not sealed");
    for (const off_t other : {off_t{0}, off_t{1}, size - 1, size + 1, 2 * size})
        EXPECT_EQ(refusal(memory(other, F_SEAL_SHRINK | F_SEAL_GROW)), "fabric.shm: the memory has another size");
    for (const int seal : {F_SEAL_WRITE, F_SEAL_FUTURE_WRITE})
        EXPECT_EQ(refusal(memory(size, F_SEAL_SHRINK | F_SEAL_GROW | seal)),
                  "fabric.shm: the memory cannot be written");
    EXPECT_EQ(refusal(UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC))),
              "fabric.shm: the memory's size is not sealed");
    EXPECT_NE(::ftruncate(made->fd(), size - 1), 0) << "nobody can cut it off";
    EXPECT_NE(::fcntl(made->fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
}

}  // namespace
}  // namespace tarn
