#include "coherence/protocol/message.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace tarn::protocol {
namespace {

Message valid() {
    Message message;
    message.kind = MessageKind::get_shared;
    message.from = 3;
    message.request_id = 1;
    message.page = PageId::of(1, 2);
    return message;
}

Errc refusal(const Message& message) {
    const Result<> result = validate(message);
    return result ? Errc{} : result.error().code;
}

std::array<std::byte, sizeof(Message)> encoded(const Message& message) {
    std::array<std::byte, sizeof(Message)> bytes;
    std::memcpy(bytes.data(), &message, sizeof message);
    return bytes;
}

TEST(Message, the_wire_layout_is_fixed) {
    Message message = valid();
    message.tenure = 0x1122334455667788;
    const auto bytes = encoded(message);
    EXPECT_EQ(bytes[0], std::byte{message_version});
    EXPECT_EQ(bytes[1], std::byte{1});
    EXPECT_EQ(bytes[2], std::byte{3});
    EXPECT_EQ(bytes[40], std::byte{0x88});
    EXPECT_EQ(bytes[47], std::byte{0x11});
}

TEST(Message, what_was_encoded_is_decoded) {
    const Result<Message> message = decode(encoded(valid()));
    ASSERT_TRUE(message);
    EXPECT_EQ(message->page, PageId::of(1, 2));
    EXPECT_EQ(message->from, 3);
}

TEST(Message, another_version_is_refused_as_unsupported) {
    Message message = valid();
    message.version = message_version + 1;
    EXPECT_EQ(refusal(message), Errc::unsupported);
}

TEST(Message, impossible_kinds_hosts_and_pages_are_refused) {
    Message message = valid();
    for (const uint8_t kind : {0, 13, 31, 46, 63, 66, 255}) {
        message.kind = static_cast<MessageKind>(kind);
        EXPECT_EQ(refusal(message), Errc::protocol) << int{kind};
    }
    message = valid();
    message.from = hosts_max;
    EXPECT_EQ(refusal(message), Errc::protocol);
    message = valid();
    message.host = hosts_max;
    EXPECT_EQ(refusal(message), Errc::protocol);
    message = valid();
    message.page = PageId{~uint64_t{0}};
    EXPECT_EQ(refusal(message), Errc::protocol);
}

TEST(Message, an_order_names_a_requester_that_waits) {
    Message message = valid();
    message.kind = MessageKind::move;
    EXPECT_EQ(refusal(message), Errc::protocol);
    message.host = 1;
    EXPECT_TRUE(validate(message));
    message.request_id = 0;
    EXPECT_EQ(refusal(message), Errc::protocol);
}

TEST(Message, a_payload_comes_only_with_kinds_that_have_one) {
    Message message = valid();
    message.flags = flag_payload;
    EXPECT_EQ(refusal(message), Errc::protocol);
    message.kind = MessageKind::data;
    EXPECT_TRUE(validate(message));
    message.flags = flag_zero;
    EXPECT_TRUE(validate(message));
    message.flags = flag_payload | flag_zero;
    EXPECT_EQ(refusal(message), Errc::protocol);
    message.flags = 0;
    EXPECT_EQ(refusal(message), Errc::protocol);
}

// Of pages 2.. of volume 1, with the request ids 1..
Message nth_request(uint32_t index) {
    Message message = valid();
    message.page = PageId::of(1, 2 + index);
    message.request_id = 1 + index;
    message.frame = 70 - index;
    return message;
}

TEST(Message, neighbours_in_one_block_travel_as_one) {
    Message run = nth_request(0);
    for (uint32_t i = 1; i < run_pages_max - 2; ++i) EXPECT_TRUE(extend(run, nth_request(i))) << i;
    EXPECT_EQ(run.run, run_pages_max - 3);
    EXPECT_TRUE(validate(run));
    for (uint32_t i = 0; i <= run.run; ++i) {
        Message expected = nth_request(i);
        expected.frame = no_frame;
        const Message part = part_of(run, i);
        EXPECT_EQ(encoded(part), encoded(expected)) << i;
    }
    EXPECT_FALSE(extend(run, nth_request(run_pages_max - 2))) << "that one lies in the next block";
}

TEST(Message, what_differs_in_anything_else_travels_alone) {
    Message run = nth_request(0);
    EXPECT_FALSE(extend(run, nth_request(0)));
    EXPECT_FALSE(extend(run, nth_request(2)));
    for (const auto change :
         {+[](Message& next) { next.kind = MessageKind::get_exclusive; }, +[](Message& next) { ++next.request_id; },
          +[](Message& next) { next.tenure = 9; }, +[](Message& next) { next.loss_generation = 1; },
          +[](Message& next) { next.run = 1; }, +[](Message& next) { next.page = PageId::of(2, 3); }}) {
        Message next = nth_request(1);
        change(next);
        EXPECT_FALSE(extend(run, next));
    }
    Message eviction = nth_request(0);
    eviction.kind = MessageKind::evict;
    eviction.flags = flag_payload;
    Message next = part_of(eviction, 0);
    next.page = PageId::of(1, 3);
    ++next.request_id;
    EXPECT_FALSE(extend(eviction, next)) << "each has a page of its own";
    EXPECT_EQ(run.run, 0);
}

TEST(Message, runs_that_cannot_be_are_refused) {
    Message run = nth_request(0);
    run.run = run_pages_max - 2;
    EXPECT_EQ(refusal(run), Errc::protocol) << "beyond the block";
    run.run = ~0u;
    EXPECT_EQ(refusal(run), Errc::protocol);
    run.run = run_pages_max - 3;
    EXPECT_TRUE(validate(run));
    run.request_id = ~0u - 3;
    EXPECT_EQ(refusal(run), Errc::protocol) << "request ids";
    run = nth_request(0);
    run.run = 1;
    for (const MessageKind kind : {MessageKind::grant, MessageKind::hello, MessageKind::resolve, MessageKind::recall,
                                   MessageKind::flush, MessageKind::acknowledge}) {
        run.kind = kind;
        EXPECT_EQ(refusal(run), Errc::protocol) << to_string(kind);
    }
    run.kind = MessageKind::evict;
    EXPECT_TRUE(validate(run));
    run.flags = flag_zero;
    EXPECT_EQ(refusal(run), Errc::protocol) << "bytes of one page only";
}

TEST(Message, a_grant_takes_along_the_bytes_of_the_holder_beside_home) {
    Message grant = valid();
    grant.kind = MessageKind::grant;
    grant.host = grant.from;
    grant.hosts = 1 << grant.from;
    grant.tenure = 7;
    grant.sequence = 4;
    grant.flags = flag_exclusive;
    EXPECT_FALSE(is_joined(grant));
    Message data = valid();
    data.kind = MessageKind::data;
    data.tenure = 7;
    data.flags = flag_payload;
    Message joined = grant;
    ASSERT_TRUE(join(joined, data));
    ASSERT_TRUE(is_joined(joined));
    EXPECT_TRUE(validate(joined));
    EXPECT_EQ(encoded(grant_of_joined(joined)), encoded(grant));
    EXPECT_EQ(encoded(data_of_joined(joined)), encoded(data));
    data.tenure = 8;
    joined = grant;
    EXPECT_FALSE(join(joined, data)) << "of another order";
    EXPECT_FALSE(is_joined(joined));
}

}  // namespace
}  // namespace tarn::protocol
