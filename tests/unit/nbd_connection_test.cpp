// The shell of the NBD server over a socket pair: what a client sees, whatever the pieces its bytes come in.
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <list>
#include <map>

#include "tests/unit/nbd_conversation.hpp"
#include "utils/alarm.hpp"

namespace tarn::nbd {
namespace {

using namespace std::chrono_literals;

Bytes write_then_read() {
    return Bytes()
        .request(Command::write, 1, 100, 5000)
        .fill(5000, std::byte{0xab})
        .request(Command::flush, 2, 0, 0)
        .request(Command::disconnect, 3, 0, 0);
}

TEST_F(NbdConnection, serves_requests_that_come_byte_by_byte) {
    run(write_then_read(), 1);
    EXPECT_EQ(answers().size(), 2 * simple_reply_size);
    std::byte bytes[5002];
    ASSERT_TRUE(disk_->try_read(99, bytes));
    EXPECT_EQ(bytes[0], std::byte{0});
    EXPECT_EQ(bytes[1], std::byte{0xab});
    EXPECT_EQ(bytes[5000], std::byte{0xab});
    EXPECT_EQ(bytes[5001], std::byte{0});
}

TEST_F(NbdConnection, serves_requests_that_miss_the_hot_path) {
    volumes_.faults.miss_every = 1;
    volumes_.faults.cold_delay_us = 100;
    run(write_then_read(), 1000);
    EXPECT_EQ(answers().size(), 2 * simple_reply_size);
}

TEST_F(NbdConnection, answers_a_thousand_pipelined_requests) {
    volumes_.faults.miss_every = 3;
    Bytes requests;
    for (uint64_t i = 0; i < 1000; ++i) requests.request(Command::read, i, i * 512, 4096);
    run(requests.request(Command::disconnect, 0, 0, 0));
    EXPECT_EQ(answers().size(), 1000 * (simple_reply_size + 4096));
}

// Small requests of such a client are only looked at, which leaves its socket less room.
TEST_F(NbdConnection, a_near_client_whose_socket_has_little_room_does_not_wait_for_ever) {
    come_near();
    constexpr int least = 1;
    ASSERT_EQ(::setsockopt(client_.get(), SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
    Bytes requests;
    for (uint64_t i = 0; i < 100; ++i) requests.request(Command::read, i, i, 1);
    run(requests.request(Command::disconnect, 0, 0, 0), request_size);
    EXPECT_EQ(answers().size(), 100 * (simple_reply_size + 1));
}

TEST_F(NbdConnection, what_a_near_client_sends_is_looked_at_first_and_it_sees_an_end_and_no_reset) {
    come_near();
    Bytes requests;
    for (uint64_t i = 0; i < 40; ++i) requests.request(Command::read, i, 0, 1);
    run(requests, request_size);
    EXPECT_EQ(answers().size(), 40 * (simple_reply_size + 1));
    EXPECT_GT(left_bytes_seen_, 8 * static_cast<int>(request_size));
    EXPECT_TRUE(ended_);
}

// Hundreds of them, looked at and not taken, would fill the socket of the client, which then could not send on.
TEST_F(NbdConnection, what_a_near_client_sends_many_at_a_time_does_not_stay_on_the_socket) {
    come_near();
    constexpr size_t at_once = 8;
    Bytes requests;
    for (uint64_t i = 0; i < 40 * at_once; ++i) requests.request(Command::read, i, 0, 1);
    run(requests, at_once * request_size);
    EXPECT_EQ(answers().size(), 40 * at_once * (simple_reply_size + 1));
    EXPECT_LT(left_bytes_seen_, 3 * static_cast<int>(at_once * request_size));
}

TEST_F(NbdConnection, nor_does_what_it_sends_at_once_after_a_few_single_requests) {
    come_near();
    const Bytes greeting = Bytes().client_flags().option(Option::go, info_payload("disk"));
    constexpr size_t greeted_size = greeting_size + go_replies_size;
    Bytes requests;
    for (uint64_t i = 0; i < 100; ++i) requests.request(Command::read, i, 0, 1);
    const auto ask = [&]() -> Task<> {
        size_t heard_size = greeted_size;
        for (int i = 0; i < 5; ++i) {
            const Bytes one = Bytes().request(Command::read, 0, 0, 1);
            EXPECT_TRUE(co_await loop_->send(client_.get(), one.bytes()));
            co_await hear(heard_size += simple_reply_size + 1);
        }
        EXPECT_GT(left_bytes_seen_, 0) << "it is near by now";
        EXPECT_TRUE(co_await loop_->send(client_.get(), requests.bytes()));
        co_await hear(heard_size += 100 * (simple_reply_size + 1));
        int left_bytes = -1;
        EXPECT_EQ(::ioctl(server_, FIONREAD, &left_bytes), 0);
        EXPECT_EQ(left_bytes, 0);
        co_return;
    };
    loop_->run_until_done(talk_around(greeting, greeted_size, ask, Bytes().request(Command::disconnect, 0, 0, 0)));
}

// Of the last write, only a part comes with what was before.
TEST_F(NbdConnection, the_volume_hears_what_requests_that_came_together_are_going_to_ask) {
    Bytes requests;
    requests.request(Command::read, 1, 4096, 512);
    requests.request(Command::write, 2, 8192, 100).fill(100, std::byte{7});
    requests.request(Command::read, 3, 12288, 1000);
    requests.request(Command::write, 4, 0, 300000).fill(300000, std::byte{8});
    requests.request(Command::flush, 5, 0, 0);
    requests.request(Command::read, 6, 8192, 4);
    requests.request(Command::read, 7, 4096, 4);
    std::vector<std::vector<Volume::Range>> expected;
    volumes_.faults.on_expect = [&](std::span<const Volume::Range> ranges) {
        expected.emplace_back(ranges.begin(), ranges.end());
    };
    run(requests);
    const auto is = [](const std::vector<Volume::Range>& ranges, const std::vector<uint64_t>& offsets) {
        return std::ranges::equal(ranges, offsets, {}, &Volume::Range::offset_bytes);
    };
    ASSERT_EQ(expected.size(), 2u);
    EXPECT_TRUE(is(expected[0], {4096, 8192, 12288, 0}));
    EXPECT_EQ(expected[0][2].size_bytes, 1000u);
    EXPECT_TRUE(is(expected[1], {8192, 4096})) << "a flush reads and writes nothing";
    EXPECT_EQ(answers().back(), std::byte{8});
}

TEST_F(NbdConnection, the_volume_hears_of_a_bounded_number_of_requests_at_a_time) {
    constexpr uint64_t count = 100;
    Bytes requests;
    for (uint64_t i = 0; i < count; ++i) requests.request(Command::read, i, i * 512, 1);
    size_t heard = 0;
    volumes_.faults.on_expect = [&](std::span<const Volume::Range> ranges) {
        EXPECT_LE(ranges.size(), 32u);
        for (const Volume::Range& range : ranges) EXPECT_EQ(range.offset_bytes, 512 * heard++);
    };
    run(requests);
    EXPECT_EQ(heard, count);
    EXPECT_EQ(answers().size(), count * (simple_reply_size + 1));
}

TEST_F(NbdConnection, half_a_write_has_no_effect) {
    run(Bytes().request(Command::write, 1, 0, 8192).fill(8000, std::byte{1}));
    EXPECT_TRUE(answers().empty());
    std::byte first;
    ASSERT_TRUE(disk_->try_read(0, std::span(&first, 1)));
    EXPECT_EQ(first, std::byte{0});
}

TEST_F(NbdConnection, a_refused_write_is_skipped_and_the_next_request_served) {
    run(Bytes()
            .request(Command::write, 1, (1 << 20) - 1, 300000)
            .fill(300000, std::byte{1})
            .request(Command::read, 2, 0, 16)
            .request(Command::disconnect, 3, 0, 0),
        7000);
    ASSERT_EQ(answers().size(), 2 * simple_reply_size + 16);
    EXPECT_EQ(error_at(0), static_cast<uint32_t>(Errno::no_space));
    EXPECT_EQ(error_at(simple_reply_size), 0u);
}

TEST_F(NbdConnection, a_volume_that_may_only_be_read_takes_no_change) {
    settings_.read_only = {"disk"};
    run(Bytes()
            .request(Command::write, 1, 0, 5000)
            .fill(5000, std::byte{1})
            .request(Command::write_zeroes, 2, 0, 4096)
            .request(Command::trim, 3, 0, 4096)
            .request(Command::read, 4, 0, 16)
            .request(Command::disconnect, 5, 0, 0));
    ASSERT_EQ(answers().size(), 4 * simple_reply_size + 16);
    for (size_t i = 0; i < 3; ++i)
        EXPECT_EQ(error_at(i * simple_reply_size), static_cast<uint32_t>(Errno::not_permitted));
    EXPECT_EQ(error_at(3 * simple_reply_size), 0u);
    EXPECT_EQ(answers().back(), std::byte{0});
}

TEST_F(NbdConnection, extended_requests_are_served_whatever_the_pieces_they_come_in) {
    const Bytes greeting =
        Bytes().client_flags().option(Option::extended_headers).option(Option::go, info_payload("disk"));
    const Bytes requests = Bytes()
                               .extended_request(Command::write, 1, 100, 5000, request_payload_length)
                               .fill(5000, std::byte{0xab})
                               .extended_request(Command::trim, 2, 8192, 1000, request_payload_length)
                               .fill(1000)
                               .extended_request(Command::read, 3, 0, 10, request_payload_length)
                               .fill(10)
                               .extended_request(Command::write_zeroes, 4, 0, uint64_t{1} << 32)
                               .extended_request(Command::disconnect, 5, 0, 0);
    for (const size_t piece_size : {size_t{1}, size_t{31}, size_t{33}, SIZE_MAX}) {
        SetUp();
        loop_->run_until_done(talk(greeting, requests, piece_size));
        const size_t begin = greeting_size + 20 + go_replies_size;
        ASSERT_EQ(said_.size(), begin + extended_reply_size + 3 * (extended_reply_size + 6)) << piece_size;
        const std::byte* at = said_.data() + begin;
        EXPECT_EQ(load_big<uint64_t>(at + 16), 100u);
        EXPECT_EQ(load_big<uint16_t>(at + 6), static_cast<uint16_t>(Chunk::none));
        at += extended_reply_size;
        for (const Errno error : {Errno::invalid, Errno::invalid, Errno::no_space}) {
            EXPECT_EQ(load_big<uint16_t>(at + 6), static_cast<uint16_t>(Chunk::error));
            EXPECT_EQ(load_big<uint32_t>(at + extended_reply_size), static_cast<uint32_t>(error));
            at += extended_reply_size + 6;
        }
        std::byte byte;
        ASSERT_TRUE(disk_->try_read(5099, std::span(&byte, 1)));
        EXPECT_EQ(byte, std::byte{0xab});
    }
}

TEST_F(NbdConnection, an_extended_request_with_a_payload_beyond_all_limits_ends_the_connection) {
    const Bytes greeting =
        Bytes().client_flags().option(Option::extended_headers).option(Option::go, info_payload("disk"));
    const Bytes requests = Bytes()
                               .extended_request(Command::write, 1, 0, uint64_t{1} << 40, request_payload_length)
                               .extended_request(Command::read, 2, 0, 16);
    loop_->run_until_done(talk(greeting, requests, SIZE_MAX));
    EXPECT_EQ(said_.size(), greeting_size + 20 + go_replies_size);
}

TEST_F(NbdConnection, a_client_that_stops_within_its_handshake_is_left_after_a_while) {
    settings_.handshake_time_max = 1s;
    loop_->run_until_done(stop_within_the_handshake([] {}));
}

TEST_F(NbdConnection, a_client_that_stops_within_its_handshake_makes_room_for_newer_ones) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    const UniqueFd ends[] = {UniqueFd(pair[0]), UniqueFd(pair[1])};
    std::list<Newcomers::Visit> newer;
    settings_.handshake_time_max = 5s;
    loop_->run_until_done(stop_within_the_handshake([&] {
        for (const UniqueFd& end : ends) newer.emplace_back(newcomers_, end.get());
    }));
    for (const Newcomers::Visit& visit : newer) EXPECT_TRUE(visit.has_place());
    newer.emplace_back(newcomers_, pair[0]);
    EXPECT_FALSE(newer.front().has_place());
    char byte;
    EXPECT_EQ(::recv(pair[1], &byte, 1, MSG_DONTWAIT), 0);  // its socket is shut down
}

TEST_F(NbdConnection, a_client_that_asks_much_and_reads_nothing_is_answered_little_and_holds_up_no_stop) {
    for (int i = 0; i < 50; ++i) volumes_.add("volume " + std::to_string(i), 1 << 20, true);
    const int room = 4096;
    ASSERT_EQ(::setsockopt(server_, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    Bytes asks = Bytes().client_flags();
    for (int i = 0; i < 250; ++i) asks.option(Option::list);
    const auto ask = [&]() -> Task<> {
        Alarm alarm(*loop_, 20s, [this] {
            ADD_FAILURE() << "it goes on";
            ::shutdown(client_.get(), SHUT_RDWR);
        });
        Gate gate;
        gate.spawn(serve());
        const Result<size_t> sent = co_await loop_->send(client_.get(), asks.bytes());
        EXPECT_TRUE(sent);
        for (size_t before = SIZE_MAX; before != volumes_.lists;) {
            before = volumes_.lists;
            for (int turns = 0; turns < 100; ++turns) co_await Yield(*loop_);
        }
        EXPECT_GT(volumes_.lists, 0u);
        EXPECT_LT(volumes_.lists, 25u);
        connection_->stop();
        co_await gate.close();
        co_await alarm.end();
    };
    loop_->run_until_done(ask());
}

TEST_F(NbdConnection, who_is_through_the_handshake_makes_room_for_nobody) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    const UniqueFd ends[] = {UniqueFd(pair[0]), UniqueFd(pair[1])};
    const auto come = [&]() -> Task<> {
        Gate gate;
        gate.spawn(serve());
        gate.spawn(collect());
        const Bytes go = Bytes().client_flags().option(Option::go, info_payload("disk"));
        const Result<size_t> sent = co_await loop_->send(client_.get(), go.bytes());
        EXPECT_TRUE(sent);
        co_await hear(greeting_size + go_replies_size);
        for (int i = 0; i < 3; ++i)
            for (const UniqueFd& end : ends) const Newcomers::Visit visit(newcomers_, end.get());
        const Bytes asks = Bytes().request(Command::read, 1, 0, 16).request(Command::disconnect, 2, 0, 0);
        const Result<size_t> asked = co_await loop_->send(client_.get(), asks.bytes());
        EXPECT_TRUE(asked);
        co_await gate.close();
    };
    loop_->run_until_done(come());
    EXPECT_EQ(answers().size(), simple_reply_size + 16);
}

TEST_F(NbdConnection, block_status_is_answered_by_one_chunk_for_each_context) {
    ASSERT_TRUE(disk_->try_write(4096, std::vector<std::byte>(4096)));
    const auto context = [](std::string_view name) { return Bytes().number(uint32_t(name.size())).text(name); };
    const Bytes both =
        Bytes().number(4u).text("disk").number(2u).add(context("base:allocation")).add(context("tarn:tier"));
    const Bytes greeting = Bytes()
                               .client_flags()
                               .option(Option::structured_reply)
                               .option(Option::set_meta_context, both)
                               .option(Option::go, info_payload("disk"));
    const Bytes asks = Bytes().request(Command::block_status, 7, 0, 8192).request(Command::disconnect, 8, 0, 0);
    loop_->run_until_done(talk(greeting, asks, SIZE_MAX));
    const auto chunk = [](uint16_t flags, uint32_t context, uint32_t first, uint32_t second) {
        Bytes bytes = Bytes().number(structured_reply_magic).number(flags).number(uint16_t{5}).number(uint64_t{7});
        return bytes.number(20u).number(context).number(4096u).number(first).number(4096u).number(second);
    };
    const Bytes expected = chunk(0, allocation_id, 3, 0).add(chunk(chunk_done, tier_id, tier_hole, tier_dram));
    const size_t size = expected.bytes().size();
    ASSERT_GE(said_.size(), size);
    EXPECT_TRUE(std::ranges::equal(std::span(said_).last(size), expected.bytes()));
}

// The read's answer and the refused write's would leave in one send.
TEST_F(NbdConnection, a_refused_write_is_answered_only_when_its_payload_came) {
    const Bytes before = Bytes()
                             .client_flags()
                             .option(Option::go, info_payload("disk"))
                             .request(Command::read, 1, 0, 1)
                             .request(Command::write, 2, (1 << 20) - 1, 8192)
                             .fill(8191, std::byte{1});
    const Bytes after = Bytes().fill(1, std::byte{1}).request(Command::disconnect, 3, 0, 0);
    loop_->run_until_done(says_only(before, greeting_size + go_replies_size + simple_reply_size + 1, after));
    ASSERT_EQ(answers().size(), simple_reply_size + 1 + simple_reply_size);
    EXPECT_EQ(error_at(simple_reply_size + 1), static_cast<uint32_t>(Errno::no_space));
}

// The volume's size takes a while to learn, so that pieces of the payload wait before they are thrown away.
TEST_F(NbdConnection, refused_writes_of_every_kind_are_answered_whatever_the_pieces_they_come_in) {
    volumes_.faults.miss_every = 1;
    for (const size_t piece_size : {1u, 27u, 29u, 4000u}) {
        SetUp();
        run(Bytes()
                .request(Command::write, 1, 1 << 20, 0)  // at the end, and nothing: allowed
                .request(Command::write, 2, (1 << 20) + 1, 0)
                .request(Command::write, 3, 1 << 20, 10)
                .fill(10)
                .request(Command::write, 4, 0, 100, request_no_hole)
                .fill(100)
                .request(Command::write, 5, 0, 1)
                .fill(1)
                .request(Command::disconnect, 6, 0, 0),
            piece_size);
        std::map<uint64_t, uint32_t> errors;
        for (size_t at = 0; at < answers().size(); at += simple_reply_size)
            errors[load_big<uint64_t>(answers().data() + at + 8)] = error_at(at);
        const auto no_space = static_cast<uint32_t>(Errno::no_space);
        const auto invalid = static_cast<uint32_t>(Errno::invalid);
        EXPECT_EQ(errors, (std::map<uint64_t, uint32_t>{{1, 0}, {2, no_space}, {3, no_space}, {4, invalid}, {5, 0}}))
            << piece_size;
    }
}

TEST_F(NbdConnection, a_refused_write_of_more_than_a_payload_may_have_is_read_and_held_nowhere) {
    constexpr uint32_t size = payload_size_max + 1;
    run(Bytes()
            .request(Command::write, 1, 0, size)
            .fill(size, std::byte{1})
            .request(Command::read, 2, 0, 16)
            .request(Command::disconnect, 3, 0, 0));
    ASSERT_EQ(answers().size(), 2 * simple_reply_size + 16);
    EXPECT_EQ(error_at(0), static_cast<uint32_t>(Errno::invalid));
    EXPECT_LE(held_bytes_seen_, Workspace::receive_size_bytes);
    EXPECT_EQ(share_.held_bytes(), 0u);
}

TEST_F(NbdConnection, requests_past_the_end_of_a_volume_that_shrank_are_refused) {
    volumes_.faults.miss_every = 1;  // the size is never at hand
    const Bytes before =
        Bytes().client_flags().option(Option::go, info_payload("disk")).request(Command::read, 1, (1 << 20) - 16, 16);
    const Bytes after = Bytes()
                            .request(Command::write, 2, (1 << 19) - 1, 1)
                            .fill(1)
                            .request(Command::write, 3, (1 << 19) - 1, 2)
                            .fill(2)
                            .request(Command::write_zeroes, 4, 1 << 19, 512)
                            .request(Command::read, 5, 1 << 19, 16)
                            .request(Command::disconnect, 6, 0, 0);
    constexpr size_t first_reply_size = simple_reply_size + 16;
    loop_->run_until_done(halve_between(before, greeting_size + go_replies_size + first_reply_size, after));
    std::map<uint64_t, uint32_t> errors;
    for (size_t at = first_reply_size; at < answers().size(); at += simple_reply_size)
        errors[load_big<uint64_t>(answers().data() + at + 8)] = error_at(at);
    const auto no_space = static_cast<uint32_t>(Errno::no_space);
    const auto invalid = static_cast<uint32_t>(Errno::invalid);
    EXPECT_EQ(errors, (std::map<uint64_t, uint32_t>{{2, 0}, {3, no_space}, {4, no_space}, {5, invalid}}));
}

TEST_F(NbdConnection, a_write_whose_end_was_cut_off_while_it_came_is_refused) {
    const Bytes before = Bytes()
                             .client_flags()
                             .option(Option::go, info_payload("disk"))
                             .request(Command::read, 1, 0, 1)
                             .request(Command::write, 2, (1 << 20) - 8192, 8192)
                             .fill(100, std::byte{1});
    const Bytes after = Bytes().fill(8092, std::byte{1}).request(Command::disconnect, 3, 0, 0);
    loop_->run_until_done(halve_between(before, greeting_size + go_replies_size + simple_reply_size + 1, after));
    ASSERT_EQ(answers().size(), simple_reply_size + 1 + simple_reply_size);
    EXPECT_EQ(error_at(simple_reply_size + 1), static_cast<uint32_t>(Errno::no_space));
}

TEST_F(NbdConnection, a_read_and_a_write_of_one_page_in_one_turn_do_not_wait_for_each_other) {
    run(Bytes()
            .request(Command::read, 1, 0, 4096)
            .request(Command::write, 2, 0, 4096)
            .fill(4096, std::byte{5})
            .request(Command::read, 3, 0, 4096)
            .request(Command::write_zeroes, 4, 0, 4096)
            .request(Command::disconnect, 5, 0, 0));
    EXPECT_EQ(answers().size(), 4 * simple_reply_size + 2 * 4096);
}

TEST_F(NbdConnection, a_failed_flush_stays_failed) {
    volumes_.faults.failing_flushes = 1;
    run(Bytes()
            .request(Command::write, 1, 0, 1, request_fua)
            .fill(1)
            .request(Command::flush, 2, 0, 0)
            .request(Command::write, 3, 0, 1)
            .fill(1)
            .request(Command::disconnect, 4, 0, 0));
    ASSERT_EQ(answers().size(), 3 * simple_reply_size);
    std::map<uint64_t, uint32_t> errors;
    for (size_t at = 0; at < answers().size(); at += simple_reply_size)
        errors[load_big<uint64_t>(answers().data() + at + 8)] = error_at(at);
    const auto io = static_cast<uint32_t>(Errno::io);
    EXPECT_EQ(errors, (std::map<uint64_t, uint32_t>{{1, io}, {2, io}, {3, 0}}));
}

TEST_F(NbdConnection, a_client_that_says_that_it_disconnects_is_not_remembered) {
    run(Bytes().request(Command::disconnect, 1, 0, 0));
    EXPECT_EQ(sessions_.size(), 0u);
}

TEST_F(NbdConnection, a_client_that_breaks_off_is_remembered) {
    run(Bytes().request(Command::read, 1, 0, 16));
    EXPECT_EQ(sessions_.size(), 1u);
}

TEST_F(NbdConnection, garbage_instead_of_a_request_ends_it) {
    run(Bytes().request(Command::read, 1, 0, 16).fill(5000, std::byte{0x55}));
    EXPECT_EQ(answers().size(), simple_reply_size + 16);
}

TEST_F(NbdConnection, garbage_instead_of_options_ends_it) {
    loop_->run_until_done(talk(Bytes().client_flags().fill(70000, std::byte{0x55}), {}, SIZE_MAX));
    EXPECT_EQ(said_.size(), greeting_size);
}

TEST_F(NbdConnection, a_client_that_leaves_in_the_handshake_is_no_error) {
    loop_->run_until_done(talk(Bytes().client_flags(), {}, SIZE_MAX));
    EXPECT_EQ(said_.size(), greeting_size);
}

// D4: an NBD client sees no attribute but the size, and could write none to have done with the loss.
TEST_F(NbdConnection, who_may_have_seen_lost_attributes_is_served) {
    volumes_.faults.attributes_lost = true;
    for (const unsigned miss_every : {0U, 1U}) {
        volumes_.faults.miss_every = miss_every;
        SetUp();
        run(write_then_read());
        ASSERT_EQ(answers().size(), 2 * simple_reply_size);
        EXPECT_EQ(error_at(0), 0U);
    }
}

TEST_F(NbdConnection, a_request_with_fua_is_flushed_on_each_of_its_ways) {
    for (const unsigned miss_every : {0U, 1U}) {
        volumes_.faults.miss_every = miss_every;
        SetUp();
        const uint64_t before = volumes_.faults.flush_count;
        run(Bytes()
                .request(Command::write, 1, 0, 1, request_fua)
                .fill(1)
                .request(Command::write_zeroes, 2, 0, 4096, request_fua)
                .request(Command::disconnect, 3, 0, 0));
        EXPECT_EQ(volumes_.faults.flush_count - before, 2U);
    }
    const Held others = hold_everything();  // the write comes in pieces
    SetUp();
    const uint64_t before = volumes_.faults.flush_count;
    run(Bytes().request(Command::write, 1, 0, 900'000, request_fua).fill(900'000).request(Command::disconnect, 3, 0, 0),
        100'000);
    EXPECT_EQ(volumes_.faults.flush_count - before, 1U);
}

}  // namespace
}  // namespace tarn::nbd
