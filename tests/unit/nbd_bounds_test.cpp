// What one NBD connection holds of the memory that all share: it goes on without room, and stays within its part.
#include <gtest/gtest.h>

#include "tests/unit/nbd_conversation.hpp"

namespace tarn::nbd {
namespace {

using namespace std::chrono_literals;

constexpr size_t needed_at_most = size_t{3} * Connection::piece_size_max;

class NbdBounds : public NbdConnection {
  protected:
    // Asks for 2 GiB, as far as the server takes the requests, and reads nothing.
    Task<> flood() {
        Gate gate;
        gate.spawn(serve());
        Bytes requests = Bytes().client_flags().option(Option::go, info_payload("disk"));
        for (uint64_t i = 0; i < 2000; ++i) requests.request(Command::read, i, 0, 1 << 20);
        std::span<const std::byte> rest = requests.bytes();
        for (bool rested = false; !rest.empty();) {
            const std::span<const std::byte> piece = rest.first(std::min<size_t>(rest.size(), 280));
            const ssize_t count = ::send(client_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
            if (count > 0) {
                rest = rest.subspan(static_cast<size_t>(count));
                rested = false;
                co_await Yield(*loop_);
            } else if (!std::exchange(rested, true)) {
                co_await rests();
            } else {
                break;
            }
        }
        EXPECT_GT(share_.held_bytes(), 0u);
        EXPECT_LE(share_.held_bytes(), share_.size_bytes());
        client_.reset();
        co_await gate.close();
        EXPECT_EQ(share_.held_bytes(), 0u);
    }
    // Until the loop has nothing to do for a while: nobody tells that nothing more will happen.
    Task<> rests() {
        const auto until = std::chrono::steady_clock::now() + 10s;
        for (uint64_t turns = 20; turns >= 20;) {
            const uint64_t before = loop_->turns();
            co_await loop_->sleep(20ms);
            turns = loop_->turns() - before;
            if (std::chrono::steady_clock::now() > until) {
                ADD_FAILURE() << "the loop turns " << turns << " times within 20 ms";
                co_return;
            }
        }
    }
    // Asks for so many pieces of the volume, reads nothing, sends no more, and lets the server stop.
    Task<> take_nothing_until_it_stops(Bytes requests) {
        Gate gate;
        gate.spawn(serve());
        const Result<size_t> sent = co_await loop_->send(client_.get(), requests.bytes());
        EXPECT_TRUE(sent);
        ::shutdown(client_.get(), SHUT_WR);
        co_await rests();
        connection_->stop();
        co_await rests();
        held_bytes_seen_ = share_.held_bytes();
        co_await gate.close();
    }
    // What follows is told how many requests the loop had served before these came.
    Task<> ask_at_once(Bytes requests, std::function<Task<>(uint64_t)> then) {
        Gate gate;
        gate.spawn(serve());
        gate.spawn(collect());
        const Bytes greeting = Bytes().client_flags().option(Option::go, info_payload("disk"));
        EXPECT_TRUE((co_await loop_->send(client_.get(), greeting.bytes())).has_value());
        co_await hear(greeting_size + go_replies_size);
        const uint64_t before = loop_->requests();
        EXPECT_TRUE((co_await loop_->send(client_.get(), requests.bytes())).has_value());
        co_await then(before);
        co_await gate.close();
    }
    // What is cold waits until so many bytes have been held, or for ten seconds.
    void wait_until_held(size_t bytes) {
        volumes_.faults.miss_every = 1;
        volumes_.faults.copies_wait = [this, bytes, until = std::chrono::steady_clock::now() + 10s] {
            held_bytes_seen_ = std::max(held_bytes_seen_, share_.held_bytes());
            return held_bytes_seen_ <= bytes && std::chrono::steady_clock::now() < until;
        };
    }
    // Beyond the share.
    size_t held_beyond() const { return held_bytes_seen_ - share_.size_bytes(); }
};

TEST_F(NbdBounds, large_writes_go_on_in_pieces_while_others_hold_the_whole_share) {
    const Held others = hold_everything();
    for (const unsigned miss_every : {0u, 1u, 3u}) {
        volumes_.faults.miss_every = miss_every;
        SetUp();
        const auto fill = std::byte(0xa0 + miss_every);
        run(Bytes()
                .request(Command::write, 1, 100, 900'000, request_fua)
                .fill(900'000, fill)
                .request(Command::write, 2, 950'000, 5000)
                .fill(5000, fill)
                .request(Command::disconnect, 3, 0, 0),
            100'000);
        EXPECT_EQ(answers().size(), 2 * simple_reply_size);
        EXPECT_EQ(error_at(0), 0u);
        volumes_.faults.miss_every = 0;
        std::vector<std::byte> bytes(900'002);
        ASSERT_TRUE(disk_->try_read(99, bytes));
        EXPECT_EQ(bytes.front(), std::byte{0});
        EXPECT_EQ(std::count(bytes.begin(), bytes.end(), fill), 900'000);
        EXPECT_EQ(bytes.back(), std::byte{0});
    }
    EXPECT_GT(held_beyond(), 0u);
    EXPECT_LE(held_beyond(), needed_at_most);
}

// They are short, and what they ask for is not.
TEST_F(NbdBounds, what_a_client_has_asked_for_that_is_gone_is_not_served) {
    Bytes requests;
    for (uint64_t i = 0; i < 2000; ++i) requests.request(Command::read, i, 0, 1 << 20);
    const auto leave = [this](uint64_t) -> Task<> {
        ::shutdown(client_.get(), SHUT_RDWR);
        co_return;
    };
    const uint64_t before = loop_->requests();
    loop_->run_until_done(ask_at_once(std::move(requests), leave));
    EXPECT_LT(loop_->requests() - before, 100u);
}

TEST_F(NbdBounds, a_client_that_asks_for_much_leaves_others_their_turn) {
    constexpr uint64_t count = 3000;
    uint64_t most = 0;
    Bytes requests;
    for (uint64_t i = 0; i < count; ++i) requests.request(Command::flush, i, 0, 0);
    const auto watch = [&](uint64_t begin) -> Task<> {
        for (uint64_t seen = begin; seen - begin < count;) {
            co_await Yield(*loop_);
            most = std::max(most, loop_->requests() - seen);
            seen = loop_->requests();
        }
        ::shutdown(client_.get(), SHUT_WR);
    };
    loop_->run_until_done(ask_at_once(std::move(requests), watch));
    EXPECT_GT(most, 0u);
    EXPECT_LE(most, Connection::turn_size_max / page_size);
}

TEST_F(NbdBounds, large_reads_go_on_in_pieces_while_others_hold_the_whole_share) {
    std::vector<std::byte> pattern((1 << 20) - 100);
    for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::byte>(i % 251);
    ASSERT_TRUE(disk_->try_write(50, pattern));
    const Held others = hold_everything();
    Bytes requests;
    for (uint64_t i = 0; i < 5; ++i)
        requests.request(Command::read, i, 50, static_cast<uint32_t>(pattern.size())).request(Command::read, 9, 0, 16);
    run(requests.request(Command::disconnect, 3, 0, 0));
    const size_t reply_size = simple_reply_size + pattern.size();
    ASSERT_EQ(answers().size(), 5 * (reply_size + simple_reply_size + 16));
    for (size_t at = 0; at < answers().size(); at += reply_size + simple_reply_size + 16) {
        EXPECT_EQ(error_at(at), 0u);
        EXPECT_TRUE(std::ranges::equal(answers().subspan(at + simple_reply_size, pattern.size()), pattern));
        EXPECT_EQ(error_at(at + reply_size), 0u);
    }
    EXPECT_LE(held_beyond(), needed_at_most);
}

TEST_F(NbdBounds, a_write_in_pieces_whose_end_is_cut_off_meanwhile_is_refused_when_all_of_it_came) {
    const Held others = hold_everything();
    const Bytes before = Bytes()
                             .client_flags()
                             .option(Option::go, info_payload("disk"))
                             .request(Command::read, 1, 0, 1)
                             .request(Command::write, 2, (1 << 20) - 160'000, 160'000)
                             .fill(100'000, std::byte{1});
    const Bytes after =
        Bytes().fill(60'000, std::byte{1}).request(Command::read, 3, 0, 1).request(Command::disconnect, 4, 0, 0);
    loop_->run_until_done(halve_between(before, greeting_size + go_replies_size + simple_reply_size + 1, after));
    ASSERT_EQ(answers().size(), 3 * simple_reply_size + 2);
    EXPECT_EQ(error_at(simple_reply_size + 1), static_cast<uint32_t>(Errno::no_space));
    EXPECT_EQ(error_at(2 * simple_reply_size + 1), 0u);
}

TEST_F(NbdBounds, a_write_in_pieces_fails_with_whichever_piece_fails_and_the_next_request_is_served) {
    constexpr uint32_t size = 2 * Connection::piece_size_max + 1000;
    for (const unsigned failing : {1u, 2u, 3u}) {
        SetUp();
        const Held others = hold_everything();
        volumes_.faults.failing_write = failing;
        run(Bytes()
                .request(Command::write, 1, 0, size)
                .fill(size, std::byte{1})
                .request(Command::read, 2, 0, 16)
                .request(Command::disconnect, 3, 0, 0),
            50'000);
        ASSERT_EQ(answers().size(), 2 * simple_reply_size + 16) << failing;
        EXPECT_EQ(error_at(0), static_cast<uint32_t>(Errno::io)) << failing;
        EXPECT_EQ(error_at(simple_reply_size), 0u);
        EXPECT_EQ(volumes_.faults.failing_write, 0u);
    }
}

// It takes what follows a header for bytes of the volume: there is no place for an error any more.
TEST_F(NbdBounds, a_read_in_pieces_of_which_a_later_one_fails_ends_the_connection) {
    constexpr uint32_t size = 15 * Connection::piece_size_max;
    const Bytes requests = Bytes().request(Command::read, 1, 0, size).request(Command::disconnect, 2, 0, 0);
    volumes_.faults.miss_every = 1;
    for (const unsigned failing : {1u, 2u}) {
        SetUp();
        const Held others = hold_everything();
        volumes_.faults.failing_read = failing;
        run(requests);
        const bool is_first = failing == 1;
        EXPECT_EQ(answers().size(), simple_reply_size + (is_first ? 0 : Connection::piece_size_max));
        EXPECT_EQ(error_at(0), static_cast<uint32_t>(is_first ? Errno::io : Errno::none));
    }
}

TEST_F(NbdBounds, a_deep_queue_goes_on_while_others_hold_the_whole_share) {
    const Held others = hold_everything();
    volumes_.faults.miss_every = 2;
    volumes_.faults.cold_delay_us = 100;
    Bytes requests;
    for (uint64_t i = 0; i < 40; ++i) {
        requests.request(Command::write, i, i * 4096, 128 * 1024).fill(128 * 1024);
        requests.request(Command::read, i, 0, 300'000);
    }
    run(requests.request(Command::disconnect, 0, 0, 0));
    EXPECT_EQ(answers().size(), 40 * (2 * simple_reply_size + 300'000));
    EXPECT_LE(held_beyond(), needed_at_most);
}

// One that waits for room waits for its own requests only.
TEST_F(NbdBounds, large_requests_stay_within_half_of_the_share) {
    wait_until_held(4u << 20);
    Bytes requests;
    for (uint64_t i = 0; i < 64; ++i) requests.request(Command::write, i, 0, 1 << 20).fill(1 << 20);
    run(requests.request(Command::disconnect, 0, 0, 0));
    EXPECT_EQ(answers().size(), 64 * simple_reply_size);
    EXPECT_GT(held_bytes_seen_, 4u << 20);
    EXPECT_LE(held_bytes_seen_, share_.size_bytes() / 2 + needed_at_most);
}

// They hold nothing while they wait; each then finds its pages gone again, and all would be copied at once.
TEST_F(NbdBounds, reads_that_have_to_be_copied_after_all_stay_within_half_of_the_share) {
    wait_until_held(2u << 20);
    Bytes requests;
    for (uint64_t i = 0; i < 200; ++i) requests.request(Command::read, i, 0, 128 * 1024);
    run(requests.request(Command::disconnect, 0, 0, 0));
    EXPECT_EQ(answers().size(), 200 * (simple_reply_size + 128 * 1024));
    EXPECT_GT(held_bytes_seen_, 2u << 20);
    EXPECT_LE(held_bytes_seen_, share_.size_bytes() / 2 + needed_at_most);
}

TEST_F(NbdBounds, stops_reading_from_a_client_that_takes_no_replies) {
    volumes_.faults.miss_every = 2;
    loop_->run_until_done(flood());
}

TEST_F(NbdBounds, a_client_that_takes_nothing_and_sends_no_more_costs_nothing_and_is_left_at_a_stop) {
    const Held all = hold_everything();
    Bytes requests = Bytes().client_flags().option(Option::go, info_payload("disk"));
    for (uint64_t i = 0; i < 8; ++i) requests.request(Command::read, i, 0, 1 << 20);
    loop_->run_until_done(take_nothing_until_it_stops(requests));
    EXPECT_LT(held_beyond(), size_t{1} << 20);
}

}  // namespace
}  // namespace tarn::nbd
