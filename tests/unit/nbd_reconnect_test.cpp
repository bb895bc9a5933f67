// A client whose connection broke, and which has come again: what it sent before comes first.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/unit/nbd_conversation.hpp"

namespace tarn::nbd {
namespace {

constexpr uint64_t page = 0;
constexpr uint32_t written_bytes = 512;
constexpr std::byte before{1};
constexpr std::byte after{2};

class NbdReconnect : public NbdConnection {
  protected:
    NbdReconnect() {
        volumes_.faults.miss_every = 1;
        volumes_.faults.copies_wait = [this] {
            ++waiting_in_turn_;
            return writes_wait_;
        };
    }

    static Bytes go() { return Bytes().client_flags().option(Option::go, info_payload("disk")); }

    // So many that wait that nothing more is read, and then the one that is of interest.
    static Bytes many_writes_and_one() {
        Bytes bytes = go();
        for (uint64_t i = 0; i < Connection::tasks_max; ++i)
            bytes.request(Command::write, i, page_size + i * written_bytes, written_bytes).fill(written_bytes);
        return bytes.request(Command::write, Connection::tasks_max, page, written_bytes).fill(written_bytes, before);
    }
    Task<> come_and_hang_up(int socket) {
        const Bytes bytes = many_writes_and_one();
        std::span<const std::byte> rest = bytes.bytes();
        while (!rest.empty()) {
            const Result<size_t> sent = co_await loop_->send(socket, rest);
            EXPECT_TRUE(sent);
            if (!sent) break;
            rest = rest.subspan(*sent);
        }
        ::shutdown(socket, SHUT_WR);
        do {
            waiting_in_turn_ = 0;
            co_await Yield(*loop_);
        } while (waiting_in_turn_ < Connection::tasks_max);
    }
    // Sends the same again, and then something else.
    Task<> come_again() {
        const Bytes bytes = go().request(Command::write, 1, page, written_bytes)
                                .fill(written_bytes, before)
                                .request(Command::write, 2, page, written_bytes)
                                .fill(written_bytes, after)
                                .request(Command::disconnect, 3, 0, 0);
        EXPECT_TRUE(co_await loop_->send(client_.get(), bytes.bytes()));
        co_await hear(greeting_size + go_replies_size);
        constexpr int turns_to_serve_it = 100;
        for (int i = 0; i < turns_to_serve_it; ++i) co_await Yield(*loop_);
    }

    static Task<> serve_first(Connection& connection) { EXPECT_EQ(co_await connection.serve(), nullptr); }
    Task<> break_off_and_come_again(Connection& first, int first_client) {
        Gate gate;
        gate.spawn(serve_first(first));
        co_await come_and_hang_up(first_client);
        volumes_.faults.miss_every = 0;
        gate.spawn(serve());
        gate.spawn(collect());
        co_await come_again();
        writes_wait_ = false;
        co_await gate.close();
    }

    bool writes_wait_ = true;
    size_t waiting_in_turn_ = 0;  // each asks once whether it still is to
};

// docs/contract.md: what is sent again lands no later than what the client writes after that.
TEST_F(NbdReconnect, what_it_sent_before_it_came_again_does_not_land_later) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    const UniqueFd first_client(pair[0]);
    Connection first(workspace_, volumes_, sessions_, UniqueFd(pair[1]), Client{.address = "test"});
    loop_->run_until_done(break_off_and_come_again(first, first_client.get()));
    std::byte there{};
    ASSERT_TRUE(disk_->try_read(page, {&there, 1}));
    EXPECT_EQ(there, after);
    EXPECT_EQ(answers().size(), 2 * simple_reply_size);
}

}  // namespace
}  // namespace tarn::nbd
