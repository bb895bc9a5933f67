#include <gtest/gtest.h>

#include "frontends/nbd/out_queue.hpp"
#include "frontends/nbd/reply.hpp"
#include "tests/support/nbd_bytes.hpp"

namespace tarn::nbd {
namespace {

constexpr Request read_request{Command::read, 0, 0x1234, 4096, 8192};
constexpr Request write_request{Command::write, 0, 0x1234, 4096, 8192};

TEST(NbdReply, a_simple_status_is_sixteen_bytes) {
    const ReplyHeader header = encode_status(write_request, Errno::no_space, true);
    ASSERT_EQ(header.size_bytes, simple_reply_size);
    EXPECT_EQ(load_big<uint32_t>(header.bytes.data()), simple_reply_magic);
    EXPECT_EQ(load_big<uint32_t>(header.bytes.data() + 4), 28u);
    uint64_t cookie;
    std::memcpy(&cookie, header.bytes.data() + 8, sizeof cookie);
    EXPECT_EQ(cookie, 0x1234u);
}

TEST(NbdReply, a_structured_read_names_its_offset) {
    const ReplyHeader header = encode_read(read_request, true);
    ASSERT_EQ(header.size_bytes, structured_reply_size + 8);
    EXPECT_EQ(load_big<uint32_t>(header.bytes.data()), structured_reply_magic);
    EXPECT_EQ(load_big<uint16_t>(header.bytes.data() + 4), chunk_done);
    EXPECT_EQ(load_big<uint32_t>(header.bytes.data() + 16), 8192u + 8);
    EXPECT_EQ(load_big<uint64_t>(header.bytes.data() + 20), 4096u);
    EXPECT_EQ(encode_read(read_request, false).size_bytes, simple_reply_size);
}

TEST(NbdReply, a_structured_read_fails_with_a_chunk) {
    const ReplyHeader header = encode_status(read_request, Errno::io, true);
    EXPECT_EQ(load_big<uint16_t>(header.bytes.data() + 6), static_cast<uint16_t>(Chunk::error));
    EXPECT_EQ(load_big<uint32_t>(header.bytes.data() + 16), 6u);
    EXPECT_EQ(header.size_bytes, structured_reply_size + 6);
    EXPECT_EQ(encode_status(read_request, Errno::io, false).size_bytes, simple_reply_size);
}

TEST(NbdReply, an_extended_one_is_always_a_chunk_and_repeats_the_offset) {
    for (const Request& request : {Request{Command::write, 0, 0x1234, 4096, 8192, true},
                                   Request{Command::trim, 0, 0x1234, 4096, uint64_t{1} << 40, true}}) {
        const ReplyHeader header = encode_status(request, Errno::none, true);
        ASSERT_EQ(header.size_bytes, extended_reply_size);
        EXPECT_EQ(load_big<uint32_t>(header.bytes.data()), extended_reply_magic);
        EXPECT_EQ(load_big<uint16_t>(header.bytes.data() + 4), chunk_done);
        EXPECT_EQ(load_big<uint16_t>(header.bytes.data() + 6), static_cast<uint16_t>(Chunk::none));
        EXPECT_EQ(load_big<uint64_t>(header.bytes.data() + 16), 4096u);
        EXPECT_EQ(load_big<uint64_t>(header.bytes.data() + 24), 0u);
        const ReplyHeader failed = encode_status(request, Errno::io, true);
        ASSERT_EQ(failed.size_bytes, extended_reply_size + 6);
        EXPECT_EQ(load_big<uint64_t>(failed.bytes.data() + 24), 6u);
        EXPECT_EQ(load_big<uint32_t>(failed.bytes.data() + 32), static_cast<uint32_t>(Errno::io));
    }
    const ReplyHeader read = encode_read({Command::read, 0, 0x1234, 4096, 8192, true}, true);
    ASSERT_EQ(read.size_bytes, extended_reply_size + 8);
    EXPECT_EQ(load_big<uint64_t>(read.bytes.data() + 24), 8192u + 8);
    EXPECT_EQ(load_big<uint64_t>(read.bytes.data() + 32), 4096u);
}

TEST(NbdReply, an_extended_block_status_has_long_lengths) {
    constexpr uint64_t huge = uint64_t{1} << 40;
    const Request request{Command::block_status, 0, 1, 0, 2 * huge, true};
    const std::vector<Extent> extents{{0, huge, true}, {huge, 3 * huge, false}};
    const Bytes expected =
        Bytes().number(allocation_id).number(2u).number(huge).number(uint64_t{3}).number(huge).number(uint64_t{0});
    EXPECT_EQ(encode_extents(request, extents), expected.bytes());
    EXPECT_EQ(encode_extents(request, {}),
              Bytes().number(allocation_id).number(1u).number(2 * huge).number(uint64_t{0}).bytes());
    const ReplyHeader header = encode_block_status(request, 40, true);
    EXPECT_EQ(load_big<uint16_t>(header.bytes.data() + 6), static_cast<uint16_t>(Chunk::block_status_extended));
}

std::vector<uint32_t> numbers(const std::vector<std::byte>& bytes) {
    std::vector<uint32_t> list;
    for (size_t at = 0; at < bytes.size(); at += 4) list.push_back(load_big<uint32_t>(bytes.data() + at));
    return list;
}

TEST(NbdReply, extents_are_cut_to_the_request) {
    Request request{Command::block_status, 0, 1, 1000, 10000};
    const std::vector<Extent> extents{{0, 4096, true}, {4096, 4096, false}, {8192, 65536, true}};
    EXPECT_EQ(numbers(encode_extents(request, extents)),
              (std::vector<uint32_t>{allocation_id, 3096, 3, 4096, 0, 2808, 3}));
    request.flags = request_one_extent;
    EXPECT_EQ(numbers(encode_extents(request, extents)), (std::vector<uint32_t>{allocation_id, 3096, 3}));
    EXPECT_EQ(numbers(encode_extents(request, {})), (std::vector<uint32_t>{allocation_id, 10000, 0}));
}

TEST(NbdReply, tiers_are_flags_of_their_own_context) {
    const Request request{Command::block_status, 0, 1, 0, 16384};
    const std::vector<TierExtent> tiers{
        {0, 4096, Tier::hole}, {4096, 4096, Tier::dram}, {8192, 4096, Tier::remote}, {12288, 65536, Tier::nvme}};
    EXPECT_EQ(numbers(encode_tiers(request, tiers)),
              (std::vector<uint32_t>{tier_id, 4096, 8, 4096, 1, 4096, 2, 4096, 4}));
}

TEST(NbdReply, too_many_extents_are_left_for_the_next_request) {
    const Request request{Command::block_status, 0, 1, 0, UINT32_MAX};
    std::vector<Extent> extents;
    for (uint64_t i = 0; i < extents_max + 100; ++i) extents.push_back({i * 4096, 4096, i % 2 == 0});
    EXPECT_EQ(encode_extents(request, extents).size(), 4 + extents_max * 8);
}

TEST(NbdReply, a_batch_points_into_pins) {
    static constexpr std::byte page[page_size]{};
    ReplyBatch batch;
    EXPECT_TRUE(batch.empty());
    batch.pins().push_back({page, page_size, 1});
    batch.add_read({Command::read, 0, 1, 0, page_size}, 0, false);
    batch.pins().push_back({page, 100, 2});
    batch.pins().push_back({page, 50, 3});
    batch.add_read({Command::read, 0, 1, 0, 150}, 1, false);
    ASSERT_EQ(batch.vectors().size(), 5u);
    EXPECT_EQ(batch.vectors()[1].iov_base, page);
    EXPECT_EQ(batch.vectors()[3].iov_len, 100u);
    EXPECT_EQ(batch.size_bytes(), 2 * simple_reply_size + page_size + 150);
    batch.clear();
    EXPECT_TRUE(batch.empty() && batch.vectors().empty() && batch.pins().empty());
}

TEST(NbdReply, pins_that_lie_side_by_side_are_one_piece) {
    static constexpr std::byte pages[4 * page_size]{};
    ReplyBatch batch;
    const auto pin = [&](size_t at, uint32_t size) { batch.pins().push_back({pages + at, size, 1}); };
    pin(100, page_size - 100);
    pin(page_size, page_size);
    pin(3 * page_size, page_size);
    pin(2 * page_size, 10);
    batch.add_read({Command::read, 0, 1, 0, 3 * page_size - 90}, 0, false);
    pin(2 * page_size + 10, 10);  // of another reply
    batch.add_read({Command::read, 0, 2, 0, 10}, 4, false);
    const std::span<const iovec> vectors = batch.vectors();
    ASSERT_EQ(vectors.size(), 6u);
    EXPECT_EQ(vectors[1].iov_base, pages + 100);
    EXPECT_EQ(vectors[1].iov_len, 2 * page_size - 100);
    EXPECT_EQ(vectors[2].iov_base, pages + 3 * page_size);
    EXPECT_EQ(vectors[2].iov_len, page_size);
    EXPECT_EQ(vectors[3].iov_len, 10u);
    EXPECT_EQ(vectors[5].iov_base, pages + 2 * page_size + 10);
    EXPECT_EQ(batch.size_bytes(), 2 * simple_reply_size + 3 * page_size - 80);
}

TEST(NbdReply, a_batch_is_full_before_it_overflows) {
    ReplyBatch batch;
    size_t count = 0;
    for (; !batch.full(); ++count) batch.add_status(write_request, Errno::none, false);
    EXPECT_EQ(count, ReplyBatch::replies_max);
}

TEST(NbdOutQueue, survives_a_socket_that_takes_a_byte_at_a_time) {
    Share share(1000);
    Budget budget{.share = share, .held_bytes_max = 1000};
    std::vector<std::byte> sent;
    {
        OutQueue queue;
        std::byte text[300];
        for (size_t i = 0; i < sizeof text; ++i) text[i] = static_cast<std::byte>(i);
        const iovec vectors[]{{text, 100}, {text + 100, 200}};
        queue.push_copy(budget, vectors, 150);
        Buffer payload(budget, 10);
        std::ranges::fill(payload.bytes(), std::byte{0xee});
        queue.push(encode_status(write_request, Errno::none, false), std::move(payload));
        EXPECT_EQ(budget.held_bytes, 160u);
        while (!queue.empty()) {
            std::vector<iovec> rest;
            queue.gather(rest, ReplyBatch::vectors_max);
            sent.push_back(*static_cast<const std::byte*>(rest.front().iov_base));
            queue.consume(1);
        }
    }
    EXPECT_EQ(budget.held_bytes, 0u);
    ASSERT_EQ(sent.size(), 150 + simple_reply_size + 10);
    EXPECT_EQ(sent[0], static_cast<std::byte>(150));
    EXPECT_EQ(sent.back(), std::byte{0xee});
}

}  // namespace
}  // namespace tarn::nbd
