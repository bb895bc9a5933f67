#include "frontends/volumes/read_ahead.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tarn {
namespace {

constexpr uint64_t request = 128 << 10;

// Reads as a session does: hits are told only at the marker. Keeps what was brought in.
struct Reader {
    explicit Reader(uint64_t limit = ReadAhead::window_max) : ahead(limit) {}
    void read(uint64_t offset, uint64_t size) {
        const bool hit = offset + size <= brought_in_end && offset >= brought_in_start;
        if (!hit) ++misses;
        if (hit && !ahead.at_marker(offset, size)) return;
        const ReadAhead::Range range = ahead.on_read(offset, size);
        if (range.size_bytes == 0) return;
        if (range.offset_bytes != brought_in_end) brought_in_start = range.offset_bytes;
        brought_in_end = range.offset_bytes + range.size_bytes;
        largest = std::max(largest, range.size_bytes);
        total += range.size_bytes;
    }
    ReadAhead ahead;
    uint64_t brought_in_start = 0;
    uint64_t brought_in_end = 0;
    uint64_t largest = 0;
    uint64_t total = 0;
    unsigned misses = 0;
};

TEST(ReadAhead, a_sequence_misses_at_its_start_only) {
    for (const uint64_t size : {uint64_t{4096}, request, uint64_t{1} << 20}) {
        Reader reader;
        for (uint64_t at = 0; at < (64 << 20); at += size) reader.read((1 << 30) + at, size);
        EXPECT_LE(reader.misses, 6) << size;
        EXPECT_LE(reader.largest, ReadAhead::window_max);
        EXPECT_LE(reader.total, (64 << 20) + ReadAhead::window_max) << "nothing is brought in twice";
    }
}

TEST(ReadAhead, random_reads_bring_in_nothing) {
    std::mt19937_64 random(1);
    Reader reader;
    for (int i = 0; i < 10000; ++i) reader.read(random() % (1 << 20) * 4096, 4096);
    EXPECT_EQ(reader.total, 0);
}

TEST(ReadAhead, a_jump_starts_over) {
    Reader reader;
    for (uint64_t at = 0; at < (8 << 20); at += request) reader.read(at, request);
    const uint64_t before = reader.total;
    reader.read(uint64_t{1} << 40, request);
    EXPECT_EQ(reader.total, before);
    for (const uint64_t i : {1, 2}) reader.read((uint64_t{1} << 40) + i * request, request);
    EXPECT_EQ(reader.total, before + ReadAhead::window_min);
}

TEST(ReadAhead, requests_in_flight_together_are_one_sequence) {
    Reader reader;
    for (uint64_t at = 0; at < (64 << 20); at += 4 * request)
        for (const uint64_t i : {1, 0, 3, 2}) reader.read(at + i * request, request);
    EXPECT_LE(reader.misses, 64u);
    EXPECT_GE(reader.total, uint64_t{48} << 20);
}

TEST(ReadAhead, a_small_pool_limits_it) {
    Reader reader(256 << 10);
    for (uint64_t at = 0; at < (8 << 20); at += 4096) reader.read(at, 4096);
    EXPECT_LE(reader.largest, 256 << 10);
    Reader none(4096);
    for (uint64_t at = 0; at < (8 << 20); at += 4096) none.read(at, 4096);
    EXPECT_EQ(none.total, 0);
}

}  // namespace
}  // namespace tarn
