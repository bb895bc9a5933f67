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

TEST(Message, what_has_no_meaning_yet_is_refused) {
    Message message = valid();
    message.reserved = 1;
    EXPECT_EQ(refusal(message), Errc::protocol);
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

}  // namespace
}  // namespace tarn::protocol
