#include "coherence/protocol/coalescing.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

namespace tarn::protocol {
namespace {

using Joined = Batch::Joined;

Message valid() {
    Message message;
    message.kind = MessageKind::get_shared;
    message.from = 3;
    message.request_id = 1;
    message.page = PageId::of(1, 2);
    return message;
}

Errc refusal(const Message& message, std::span<const Part> parts = {}) {
    const Result<> result = validate(message, parts);
    return result ? Errc{} : result.error().code;
}

std::array<std::byte, sizeof(Message)> encoded(const Message& message) {
    std::array<std::byte, sizeof(Message)> bytes;
    std::memcpy(bytes.data(), &message, sizeof message);
    return bytes;
}

// Of pages 2.. of volume 1, with the request ids 1..
Message nth_request(uint32_t index) {
    Message message = valid();
    message.page = PageId::of(1, 2 + index);
    message.request_id = 1 + index;
    message.frame = 70 - index;
    return message;
}

Message nth_eviction(uint32_t index) {
    Message message = valid();
    message.kind = MessageKind::evict;
    message.page = PageId::of(1, 1000 * index);
    message.request_id = 1 + index * 7;
    message.tenure = 5 + index % 3;
    message.sequence = index;
    message.hosts = index * 2;
    return message;
}

// A batch as it lies in what is sent, and what was said.
struct Outgoing {
    Batch batch;
    std::vector<Part> parts;
    std::vector<Message> said;

    Joined send(const Message& message) {
        const Joined joined = batch.join(message);
        if (joined == Joined::no) return joined;
        if (joined == Joined::part)
            parts.push_back(batch.last_part());
        else if (!parts.empty())
            parts.back() = batch.last_part();
        said.push_back(message);
        return joined;
    }
    void begin(const Message& message) {
        batch.begin(message);
        parts.clear();
        said.assign(1, message);
    }
    // Taken apart it is what was said, but for the frames.
    void expect_the_same() const {
        EXPECT_TRUE(validate(batch.message(), parts));
        size_t next = 0;
        for (size_t i = 0; i <= parts.size(); ++i) {
            const Message run = run_of(batch.message(), parts, i);
            EXPECT_TRUE(validate(run));
            for (uint32_t j = 0; j <= run.run; ++j, ++next) {
                ASSERT_LT(next, said.size());
                Message expected = said[next];
                Message seen = part_of(run, j);
                expected.frame = seen.frame = no_frame;
                EXPECT_TRUE(encoded(seen) == encoded(expected)) << next;
            }
        }
        EXPECT_EQ(next, said.size());
    }
};

TEST(Coalescing, neighbours_in_one_block_are_a_run) {
    Outgoing out;
    out.begin(nth_request(0));
    for (uint32_t i = 1; i < run_pages_max - 2; ++i) EXPECT_EQ(out.send(nth_request(i)), Joined::run) << i;
    EXPECT_EQ(out.batch.message().run, run_pages_max - 3);
    EXPECT_EQ(out.batch.message().parts, 0);
    out.expect_the_same();
}

TEST(Coalescing, a_read_of_many_blocks_is_one_message) {
    Outgoing out;
    Message first = nth_request(0);
    first.page = PageId::of(1, 16 * 9);
    out.begin(first);
    for (uint32_t i = 1; i < joined_pages_max; ++i) {
        Message each = first;
        each.page.value += i;
        each.request_id = 1 + i % run_pages_max + 100 * (i / run_pages_max);  // each stripe counts its own
        EXPECT_EQ(out.send(each), i % run_pages_max == 0 ? Joined::part : Joined::run) << i;
    }
    EXPECT_EQ(out.batch.message().parts, joined_pages_max / run_pages_max - 1);
    out.expect_the_same();
    Message beyond = first;
    beyond.page.value += joined_pages_max;
    EXPECT_EQ(out.send(beyond), Joined::no) << "a message stands for so many pages and no more";
    out.expect_the_same();
}

TEST(Coalescing, evictions_of_any_pages_are_one_message) {
    Outgoing out;
    out.begin(nth_eviction(0));
    for (uint32_t i = 1; i < 100; ++i) EXPECT_EQ(out.send(nth_eviction(i)), Joined::part);
    EXPECT_EQ(out.batch.message().parts, 99);
    Message next = nth_eviction(99);
    ++next.page.value;
    ++next.request_id;
    EXPECT_EQ(out.send(next), Joined::run) << "the neighbour of the last";
    out.expect_the_same();
}

TEST(Coalescing, what_differs_in_anything_else_travels_alone) {
    Outgoing out;
    out.begin(nth_request(0));
    for (const auto change :
         {+[](Message& next) { next.kind = MessageKind::get_exclusive; },
          +[](Message& next) { next.loss_generation = 1; }, +[](Message& next) { next.incarnation = 1; },
          +[](Message& next) { next.run = 1; }, +[](Message& next) { next.parts = 1; },
          +[](Message& next) { next.flags = flag_exclusive; }, +[](Message& next) { next.from = 4; },
          +[](Message& next) { next.hosts = uint64_t{1} << 32; }, +[](Message& next) { next.reserved = 1; }}) {
        Message next = nth_request(1);
        change(next);
        EXPECT_EQ(out.send(next), Joined::no);
    }
    out.expect_the_same();
    Message eviction = nth_eviction(0);
    eviction.flags = flag_payload;
    out.begin(eviction);
    EXPECT_FALSE(out.batch.is_open()) << "each has a page of its own";
    Message grant = valid();
    grant.kind = MessageKind::grant;
    out.begin(grant);
    EXPECT_FALSE(out.batch.is_open());
    out.begin(nth_request(0));
    out.batch.end();
    EXPECT_EQ(out.send(nth_request(1)), Joined::no) << "it has left";
}

TEST(Coalescing, runs_that_cannot_be_are_refused) {
    Message run = nth_request(0);
    run.run = run_pages_max - 2;
    EXPECT_EQ(refusal(run), Errc::protocol) << "beyond the block";
    run.run = 0xffff;
    EXPECT_EQ(refusal(run), Errc::protocol);
    run.run = run_pages_max - 3;
    EXPECT_EQ(refusal(run), Errc{});
    run.request_id = ~0u - 3;
    EXPECT_EQ(refusal(run), Errc::protocol) << "request ids";
    run = nth_request(0);
    run.page = {~uint64_t{0} - 1};
    EXPECT_EQ(refusal(run), Errc{});
    run.run = 1;
    EXPECT_EQ(refusal(run), Errc::protocol) << "the last is no page";
    for (const auto change :
         {+[](Message& message) { message.run = 1; }, +[](Message& message) { message.parts = 1; }}) {
        run = nth_request(0);
        change(run);
        const std::vector<Part> parts(run.parts, {.page = PageId::of(1, 0), .request_id = 1});
        for (const MessageKind kind : {MessageKind::grant, MessageKind::hello, MessageKind::resolve,
                                       MessageKind::recall, MessageKind::flush, MessageKind::acknowledge}) {
            run.kind = kind;
            EXPECT_EQ(refusal(run, parts), Errc::protocol) << to_string(kind);
        }
        run.kind = MessageKind::evict;
        EXPECT_EQ(refusal(run, parts), Errc{});
        run.flags = flag_zero;
        EXPECT_EQ(refusal(run, parts), Errc::protocol) << "bytes of one page only";
    }
}

TEST(Coalescing, parts_that_cannot_be_are_refused) {
    const auto part = [](uint64_t number, uint32_t run = 0) {
        return Part{.page = PageId::of(1, number), .request_id = 9, .run = run};
    };
    Message head = nth_request(0);
    head.parts = 2;
    EXPECT_EQ(refusal(head, std::array{part(7), part(30)}), Errc{});
    EXPECT_EQ(refusal(head, std::array{part(7)}), Errc::protocol) << "fewer than it says";
    EXPECT_EQ(refusal(head, std::array{part(7), part(30, 2)}), Errc::protocol) << "beyond its block";
    EXPECT_EQ(refusal(head, std::array{part(7), part(32, 0x10000)}), Errc::protocol) << "more than a run can say";
    Part bad = part(30);
    bad.request_id = 0;
    EXPECT_EQ(refusal(head, std::array{part(7), bad}), Errc::protocol) << "a request without an id";
    bad = part(30);
    bad.page.value = ~uint64_t{0};
    EXPECT_EQ(refusal(head, std::array{part(7), bad}), Errc::protocol) << "no page";
    bad = part(30);
    bad.tenure = ~uint64_t{0};
    EXPECT_EQ(refusal(head, std::array{part(7), bad}), Errc::protocol) << "no tenure";
    head.parts = joined_pages_max;
    EXPECT_EQ(refusal(head, std::vector<Part>(joined_pages_max, part(7))), Errc::protocol);
    EXPECT_FALSE(validate(head)) << "known from the message alone, before the parts are waited for";
    head.parts = joined_pages_max / run_pages_max;
    std::vector<Part> runs(head.parts, part(16, run_pages_max - 1));
    EXPECT_EQ(refusal(head, runs), Errc::protocol) << "all together too many pages";
    runs.back().run = run_pages_max - 2;
    EXPECT_EQ(refusal(head, runs), Errc{});
}

Message a_grant() {
    Message grant = valid();
    grant.kind = MessageKind::grant;
    grant.host = grant.from;
    grant.hosts = 1 << grant.from;
    grant.tenure = 7;
    grant.sequence = 4;
    grant.flags = flag_exclusive;
    return grant;
}

Message its_data() {
    Message data = valid();
    data.kind = MessageKind::data;
    data.tenure = 7;
    data.flags = flag_payload;
    return data;
}

TEST(Coalescing, a_grant_takes_along_the_bytes_of_the_holder_beside_home) {
    PendingGrant held;
    EXPECT_TRUE(PendingGrant::is_worth_holding(a_grant(), 3));
    EXPECT_FALSE(PendingGrant::is_worth_holding(a_grant(), 2)) << "another host has the bytes";
    EXPECT_FALSE(is_joined(a_grant()));
    held.hold(5, a_grant());
    Message joined = its_data();
    ASSERT_TRUE(held.join(5, joined));
    EXPECT_FALSE(held.holds());
    ASSERT_TRUE(is_joined(joined));
    EXPECT_TRUE(validate(joined));
    EXPECT_EQ(encoded(grant_of_joined(joined)), encoded(a_grant()));
    EXPECT_EQ(encoded(data_of_joined(joined)), encoded(its_data()));
    EXPECT_FALSE(held.join(5, joined)) << "nothing is held any more";
}

TEST(Coalescing, a_grant_takes_along_no_other_bytes) {
    for (const auto change : {+[](Message& data) { data.tenure = 8; }, +[](Message& data) { data.request_id = 2; },
                              +[](Message& data) { data.page = PageId::of(1, 3); },
                              +[](Message& data) { data.kind = MessageKind::grant; }}) {
        PendingGrant held;
        held.hold(5, a_grant());
        Message data = its_data();
        change(data);
        const Message before = data;
        EXPECT_FALSE(held.join(5, data));
        EXPECT_EQ(encoded(data), encoded(before));
        const auto [to, message] = held.release();
        EXPECT_EQ(to, 5);
        EXPECT_EQ(encoded(message), encoded(a_grant()));
        EXPECT_FALSE(held.holds());
    }
    PendingGrant held;
    held.hold(5, a_grant());
    Message data = its_data();
    EXPECT_FALSE(held.join(4, data)) << "to another host";
}

}  // namespace
}  // namespace tarn::protocol
