// How long a client within TLS may keep a shard busy, and how its connection ends.
#include <poll.h>

#include <atomic>
#include <cerrno>

#include "tests/unit/nbd_tls_conversation.hpp"

namespace tarn::nbd {
namespace {

constexpr size_t room_bytes = 4 << 20;
// Of records that hold nothing for the server: more than two receives take.
constexpr unsigned record_count = 40'000;

class NbdTlsTurns : public NbdTls {
  protected:
    // Makes room for all that a test has the client send before the server receives.
    void SetUp() override {
        const int room = room_bytes;
        if (::setsockopt(client_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0)
            GTEST_SKIP() << "only root may have so much on a socket";
    }

    // The client sends these bytes, sealed, at once; then the server calls receive.
    void receive_what_is_there(const std::function<std::vector<std::byte>(TlsClient&)>& sealed,
                               const std::function<Task<>(Stream&)>& receive,
                               const char* priority = TlsClient::priority_usual) {
        Stream stream(std::move(server_));
        std::atomic<bool> is_there{false};
        const auto serve = [&]() -> Task<> {
            const Result<> begun = co_await stream.begin_tls(*loop_, credentials_, buffers());
            EXPECT_TRUE(begun);
            while (!is_there) co_await Yield(*loop_);
            co_await receive(stream);
            stream.close();
        };
        together(serve(), [&] {
            TlsClient client(client_.get(), tls_user, tls_key, priority);
            EXPECT_TRUE(client.shake_hands());
            const std::vector<std::byte> bytes = sealed(client);
            EXPECT_EQ(::send(client_.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
            is_there = true;
        });
    }
    ssize_t receive(Stream& stream, std::span<std::byte> into) {
        iovec vector{into.data(), into.size()};
        msghdr message{};
        message.msg_iov = &vector;
        message.msg_iovlen = 1;
        return stream.receive(message, false, {}, buffers());
    }
    // Behind many records that hold nothing come five bytes.
    void expect_turns(const std::function<void(TlsClient&)>& send_nothing, const char* priority) {
        const auto send = [&](TlsClient& client) {
            return client.sealed([&] {
                for (unsigned i = 0; i < record_count; ++i) send_nothing(client);
                EXPECT_TRUE(client.send(std::vector<std::byte>(5)));
            });
        };
        const auto receive_all = [this](Stream& stream) -> Task<> {
            std::vector<std::byte> into(100);
            unsigned turns = 1;
            ssize_t count = receive(stream, into);
            for (; count < 0 && errno == EAGAIN && stream.may_have_more(); ++turns) count = receive(stream, into);
            EXPECT_EQ(count, 5) << stream.trouble();
            EXPECT_GE(turns, 3u);
            EXPECT_FALSE(stream.may_have_more());
            co_return;
        };
        receive_what_is_there(send, receive_all, priority);
    }
};

TEST_F(NbdTlsTurns, one_receive_takes_a_part_of_what_is_there_and_says_so) {
    static constexpr size_t size = 1'000'000;
    const auto send = [](TlsClient& client) {
        return client.sealed([&] { EXPECT_TRUE(client.send(std::vector<std::byte>(size))); });
    };
    receive_what_is_there(send, [this](Stream& stream) -> Task<> {
        std::vector<std::byte> into(size + 1);
        size_t received = 0;
        while (received < size) {
            const ssize_t count = receive(stream, into);
            EXPECT_GT(count, 0);
            EXPECT_LE(count, static_cast<ssize_t>(Stream::receive_size_max));
            if (count <= 0) break;
            received += static_cast<size_t>(count);
            EXPECT_EQ(stream.may_have_more(), received < size) << received;
        }
        EXPECT_EQ(received, size);
        co_return;
    });
}

TEST_F(NbdTlsTurns, one_send_takes_a_part_of_what_is_given_to_it_though_the_socket_has_room) {
    const int room = 2 * room_bytes;
    ASSERT_EQ(::setsockopt(server_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room), 0);
    Stream stream(std::move(server_));
    TlsClient client(client_.get());
    ASSERT_TRUE(begun(stream, [&] { EXPECT_TRUE(client.shake_hands()); }));
    const std::vector<std::byte> bytes(room_bytes);
    const iovec vector{const_cast<std::byte*>(bytes.data()), bytes.size()};
    const ssize_t taken = stream.send(std::span(&vector, 1), buffers());
    EXPECT_TRUE(stream.is_flushed());
    EXPECT_GE(taken, static_cast<ssize_t>(Stream::send_size_max));
    EXPECT_LE(taken, static_cast<ssize_t>(Stream::send_size_max + Stream::sealed_size_max));
}

// Version 1.3 knows no alert that ends nothing.
TEST_F(NbdTlsTurns, warnings_are_bounded_alike_and_end_nothing) {
    expect_turns([](TlsClient& client) { client.warn(); }, "NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+ECDHE-PSK");
}

TEST_F(NbdTlsTurns, empty_records_are_bounded_alike_and_end_nothing) {
    expect_turns([](TlsClient& client) { client.send_nothing(); }, TlsClient::priority_usual);
}

TEST_F(NbdTlsTurns, others_get_their_turn_between_two_receives_of_a_negotiation) {
    static constexpr size_t size = 200'000;
    static constexpr size_t step = 4096;
    const auto send = [](TlsClient& client) {
        return client.sealed([&] { EXPECT_TRUE(client.send(std::vector<std::byte>(size))); });
    };
    receive_what_is_there(send, [this](Stream& stream) -> Task<> {
        bool is_over = false;
        unsigned turns = 0;
        const auto others = [&]() -> Task<> {
            while (!is_over) {
                co_await Yield(*loop_);
                ++turns;
            }
        };
        Gate gate;
        gate.spawn(others());
        std::vector<std::byte> into(step);
        size_t received = 0;
        while (received < size) {
            const Result<size_t> count = co_await stream.receive(*loop_, into, buffers());
            EXPECT_TRUE(count);
            if (!count || *count == 0) break;
            received += *count;
        }
        EXPECT_EQ(received, size);
        EXPECT_GE(turns, size / step);
        is_over = true;
        co_await gate.close();
    });
}

// What the client sends meanwhile is all there when the server receives again.
TEST_F(NbdTlsConnection, what_a_receive_left_on_the_socket_is_served_without_a_further_byte) {
    const int room = room_bytes;
    if (::setsockopt(client_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0)
        GTEST_SKIP() << "only root may have so much on a socket";
    std::atomic<bool> is_waiting{false};
    std::atomic<bool> is_there{false};
    volumes_.faults.miss_every = 1;
    volumes_.faults.copies_wait = [&] {
        is_waiting = true;
        while (!is_there) std::this_thread::yield();
        return false;
    };
    talk(admission(TlsMode::require, {}), [&] {
        ask_for_tls({}, 0);
        TlsClient client(client_.get());
        EXPECT_TRUE(client.shake_hands());
        EXPECT_TRUE(client.send(
            Bytes().option(Option::go, info_payload("open")).request(Command::write, 1, 0, 1).text("x").bytes()));
        while (!is_waiting) std::this_thread::yield();
        const std::vector<std::byte> bytes = client.sealed([&] {
            for (unsigned i = 0; i < 2 * record_count; ++i) client.send_nothing();
            EXPECT_TRUE(client.send(Bytes().request(Command::read, 2, 0, 1).bytes()));
        });
        EXPECT_EQ(::send(client_.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
        is_there = true;
        constexpr size_t replies_size = 20 + 12 + 20 + 14 + 20 + simple_reply_size + simple_reply_size + 1;
        EXPECT_EQ(client.receive(replies_size).size(), replies_size);
        client_.reset();
    });
}

// There is no later send that would take it along.
TEST_F(NbdTls, who_breaks_the_rules_is_told_so) {
    Stream stream(std::move(server_));
    TlsClient client(client_.get());
    ASSERT_TRUE(begun(stream, [&] { EXPECT_TRUE(client.shake_hands()); }));
    const Bytes record = Bytes().text("\x17\x03\x03").number(uint16_t{32}).fill(32);
    ASSERT_EQ(::send(client_.get(), record.bytes().data(), record.bytes().size(), 0),
              static_cast<ssize_t>(record.bytes().size()));
    std::byte into{};
    iovec vector{&into, 1};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    EXPECT_EQ(stream.receive(message, false, {}, buffers()), -1);
    stream.close();
    EXPECT_EQ(client.alert(), GNUTLS_A_BAD_RECORD_MAC);
}

// The socket stays open for what the client still sends: closed, it might be reset, and its last replies lost.
TEST_F(NbdTlsConnection, the_server_says_that_nothing_more_comes_and_waits_for_the_client) {
    talk(admission(TlsMode::require, {}), [this] {
        ask_for_tls({}, 0);
        TlsClient client(client_.get());
        EXPECT_TRUE(client.shake_hands());
        EXPECT_TRUE(client.send(
            Bytes().option(Option::go, info_payload("open")).request(Command::disconnect, 1, 0, 0).bytes()));
        client.receive(20 + 12 + 20 + 14 + 20);
        EXPECT_TRUE(client.saw_end());
        char byte = 0;
        EXPECT_EQ(::recv(client_.get(), &byte, 1, 0), 0) << "also below TLS";
        pollfd end{.fd = client_.get(), .events = 0, .revents = 0};
        EXPECT_EQ(::poll(&end, 1, 0), 0) << "it is closed";
        client_.reset();
    });
}

}  // namespace
}  // namespace tarn::nbd
