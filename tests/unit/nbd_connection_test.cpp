// The shell of the NBD server over a socket pair: what a client sees, whatever the pieces its bytes come in.
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <map>

#include "frontends/nbd/connection.hpp"
#include "tests/support/memory_volumes.hpp"
#include "tests/support/nbd_bytes.hpp"

namespace tarn::nbd {
namespace {

using namespace std::chrono_literals;

constexpr size_t greeting_size = 18;
constexpr size_t go_replies_size = 20 + 12 + 20 + 14 + 20;

class NbdConnection : public testing::Test {
  protected:
    NbdConnection() : loop_(std::move(*Loop::create())), workspace_(*loop_, share_) {
        disk_ = volumes_.add("disk", 1 << 20, false);
    }
    // A new client.
    void SetUp() override {
        said_.clear();
        int pair[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        client_ = UniqueFd(pair[0]);
        server_ = pair[1];
        connection_ =
            std::make_unique<Connection>(workspace_, volumes_, sessions_, UniqueFd(server_), Client{.address = "test"});
    }
    // A new one that runs on the shard's own CPU: this process.
    void come_near() {
        loop_->set_cpus(*CpuSet::of_thread());
        SetUp();
        Client client = Client::of(server_);
        ASSERT_NE(client.started, 0u);
        server_ = ::dup(server_);  // the one before closes its own
        connection_ = std::make_unique<Connection>(workspace_, volumes_, sessions_, UniqueFd(server_),
                                                   std::move(client), [](unsigned) { return nullptr; });
    }

    Task<> serve() { EXPECT_EQ(co_await connection_->serve(), nullptr); }

    // Sends bytes in pieces, closes our sending side, and collects everything the server says until it closes.
    Task<> talk(Bytes greeting, Bytes bytes, size_t piece_size) {
        Gate gate;
        gate.spawn(serve());
        gate.spawn(send(std::move(greeting), std::move(bytes), piece_size));
        gate.spawn(collect());
        co_await gate.close();
    }
    Task<> send(Bytes greeting, Bytes bytes, size_t piece_size) {
        co_await send_pieces(greeting.bytes(), piece_size);
        co_await send_pieces(bytes.bytes(), piece_size);
        ::shutdown(client_.get(), SHUT_WR);
    }
    Task<> send_pieces(std::span<const std::byte> rest, size_t piece_size) {
        while (!rest.empty()) {
            const Result<size_t> sent =
                co_await loop_->send(client_.get(), rest.first(std::min(piece_size, rest.size())));
            if (!sent) break;
            rest = rest.subspan(*sent);
            co_await Yield(*loop_);
            held_bytes_seen_ = std::max(held_bytes_seen_, share_.held_bytes());
        }
    }
    Task<> collect() {
        std::vector<std::byte> bytes(64 * 1024);
        for (;;) {
            const Result<size_t> count = co_await loop_->receive(client_.get(), bytes);
            ended_ = count.has_value();
            if (!count || *count == 0) co_return;
            held_bytes_seen_ = std::max(held_bytes_seen_, share_.held_bytes());
            int left_bytes = 0;
            (void)::ioctl(server_, FIONREAD, &left_bytes);  // it may be closed by now
            left_bytes_seen_ = std::max(left_bytes_seen_, left_bytes);
            said_.insert(said_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(*count));
        }
    }
    // Sends before, waits until the server has said so many bytes, halves the volume, and sends after.
    Task<> halve_between(Bytes before, size_t said_bytes, Bytes after) {
        Gate gate;
        gate.spawn(serve());
        gate.spawn(collect());
        const Result<size_t> sent_before = co_await loop_->send(client_.get(), before.bytes());
        EXPECT_TRUE(sent_before);
        while (said_.size() < said_bytes) co_await loop_->sleep(1ms);
        const Result<Attributes> halved = co_await disk_->change_attributes({.size_bytes = 1 << 19});
        EXPECT_TRUE(halved);
        const Result<size_t> sent_after = co_await loop_->send(client_.get(), after.bytes());
        EXPECT_TRUE(sent_after);
        co_await gate.close();
    }
    // Sends before, waits until the server has said so many bytes, and that these are all; then sends after.
    Task<> says_only(Bytes before, size_t said_bytes, Bytes after) {
        Gate gate;
        gate.spawn(serve());
        gate.spawn(collect());
        const Result<size_t> sent_before = co_await loop_->send(client_.get(), before.bytes());
        EXPECT_TRUE(sent_before);
        while (said_.size() < said_bytes) co_await loop_->sleep(1ms);
        EXPECT_EQ(said_.size(), said_bytes);
        const Result<size_t> sent_after = co_await loop_->send(client_.get(), after.bytes());
        EXPECT_TRUE(sent_after);
        co_await gate.close();
    }
    // Asks for 2 GiB, as far as the server takes the requests, and reads nothing.
    Task<> flood() {
        Gate gate;
        gate.spawn(serve());
        Bytes requests = Bytes().client_flags().option(Option::go, info_payload("disk"));
        for (uint64_t i = 0; i < 2000; ++i) requests.request(Command::read, i, 0, 1 << 20);
        std::span<const std::byte> rest = requests.bytes();
        for (unsigned idle_ms = 0; idle_ms < 20 && !rest.empty(); ++idle_ms) {
            const std::span<const std::byte> piece = rest.first(std::min<size_t>(rest.size(), 280));
            const ssize_t count = ::send(client_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
            if (count > 0) {
                rest = rest.subspan(static_cast<size_t>(count));
                idle_ms = 0;
            }
            co_await loop_->sleep(1ms);
        }
        EXPECT_GT(share_.held_bytes(), 0u);
        EXPECT_LE(share_.held_bytes(), share_.size_bytes());
        client_.reset();
        co_await gate.close();
        EXPECT_EQ(share_.held_bytes(), 0u);
    }
    // Until the loop has nothing to do for a while.
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
    void run(const Bytes& requests, size_t piece_size = SIZE_MAX) {
        const Bytes greeting = Bytes().client_flags().option(Option::go, info_payload("disk"));
        loop_->run_until_done(talk(greeting, requests, piece_size));
    }
    std::span<const std::byte> answers() const {
        EXPECT_GE(said_.size(), greeting_size + go_replies_size);
        return std::span(said_).subspan(greeting_size + go_replies_size);
    }
    uint32_t error_at(size_t offset) const { return load_big<uint32_t>(answers().data() + offset + 4); }

    // As if other connections, whose requests wait for a host that is away, held the whole share.
    Held hold_everything() { return {others_, share_.size_bytes()}; }
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

    std::unique_ptr<Loop> loop_;
    Share share_{16 << 20};
    Budget others_{.share = share_, .held_bytes_max = 0};
    size_t held_bytes_seen_ = 0;
    Workspace workspace_;
    MemoryVolumes volumes_;
    Sessions sessions_;
    std::shared_ptr<MemoryVolume> disk_;
    UniqueFd client_;
    int server_ = -1;  // the connection's
    std::unique_ptr<Connection> connection_;
    std::vector<std::byte> said_;
    int left_bytes_seen_ = 0;  // on the server's socket, after an answer
    bool ended_ = false;       // it was told of the end, not of an error
};

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

constexpr size_t needed_at_most = size_t{3} * Connection::piece_size_max;

TEST_F(NbdConnection, large_writes_go_on_in_pieces_while_others_hold_the_whole_share) {
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

TEST_F(NbdConnection, large_reads_go_on_in_pieces_while_others_hold_the_whole_share) {
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

TEST_F(NbdConnection, a_write_in_pieces_whose_end_is_cut_off_meanwhile_is_refused_when_all_of_it_came) {
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

TEST_F(NbdConnection, a_deep_queue_goes_on_while_others_hold_the_whole_share) {
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
TEST_F(NbdConnection, large_requests_stay_within_half_of_the_share) {
    wait_until_held(4u << 20);
    Bytes requests;
    for (uint64_t i = 0; i < 64; ++i) requests.request(Command::write, i, 0, 1 << 20).fill(1 << 20);
    run(requests.request(Command::disconnect, 0, 0, 0));
    EXPECT_EQ(answers().size(), 64 * simple_reply_size);
    EXPECT_GT(held_bytes_seen_, 4u << 20);
    EXPECT_LE(held_bytes_seen_, share_.size_bytes() / 2 + needed_at_most);
}

// They hold nothing while they wait; each then finds its pages gone again, and all would be copied at once.
TEST_F(NbdConnection, reads_that_have_to_be_copied_after_all_stay_within_half_of_the_share) {
    wait_until_held(2u << 20);
    Bytes requests;
    for (uint64_t i = 0; i < 200; ++i) requests.request(Command::read, i, 0, 128 * 1024);
    run(requests.request(Command::disconnect, 0, 0, 0));
    EXPECT_EQ(answers().size(), 200 * (simple_reply_size + 128 * 1024));
    EXPECT_GT(held_bytes_seen_, 2u << 20);
    EXPECT_LE(held_bytes_seen_, share_.size_bytes() / 2 + needed_at_most);
}

TEST_F(NbdConnection, stops_reading_from_a_client_that_takes_no_replies) {
    volumes_.faults.miss_every = 2;
    loop_->run_until_done(flood());
}

TEST_F(NbdConnection, a_client_that_takes_nothing_and_sends_no_more_costs_nothing_and_is_left_at_a_stop) {
    const Held all = hold_everything();
    Bytes requests = Bytes().client_flags().option(Option::go, info_payload("disk"));
    for (uint64_t i = 0; i < 8; ++i) requests.request(Command::read, i, 0, 1 << 20);
    loop_->run_until_done(take_nothing_until_it_stops(requests));
    EXPECT_LT(held_beyond(), size_t{1} << 20);
}

}  // namespace
}  // namespace tarn::nbd
