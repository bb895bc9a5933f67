// What the tests of one NBD connection share: a server's end, and a client that sends bytes in pieces and collects what
// the server says.
#pragma once

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "frontends/nbd/connection.hpp"
#include "tests/support/memory_volumes.hpp"
#include "tests/support/nbd_bytes.hpp"

namespace tarn::nbd {

inline constexpr size_t greeting_size = 18;
inline constexpr size_t go_replies_size = 20 + 12 + 20 + 14 + 20;

class NbdConnection : public testing::Test {
  protected:
    NbdConnection() : loop_(std::move(*Loop::create())), workspace_(*loop_, share_, settings_, newcomers_) {
        disk_ = volumes_.add("disk", 1 << 20, false);
    }
    // A new client.
    void SetUp() override {
        said_.clear();
        says_no_more_ = false;
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
            says_no_more_ = !count || *count == 0;
            if (says_no_more_) co_return said_more_.notify_all();
            held_bytes_seen_ = std::max(held_bytes_seen_, share_.held_bytes());
            int left_bytes = 0;
            (void)::ioctl(server_, FIONREAD, &left_bytes);  // it may be closed by now
            left_bytes_seen_ = std::max(left_bytes_seen_, left_bytes);
            said_.insert(said_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(*count));
            said_more_.notify_all();
        }
    }
    // Until the server has said so many bytes, or says no more.
    Task<> hear(size_t bytes) {
        while (said_.size() < bytes && !says_no_more_) co_await said_more_.wait();
    }
    // Sends before, waits until the server has said so many bytes, does what comes between, and sends after.
    Task<> talk_around(Bytes before, size_t said_bytes, std::function<Task<>()> between, Bytes after) {
        Gate gate;
        gate.spawn(serve());
        gate.spawn(collect());
        const Result<size_t> sent_before = co_await loop_->send(client_.get(), before.bytes());
        EXPECT_TRUE(sent_before);
        co_await hear(said_bytes);
        co_await between();
        const Result<size_t> sent_after = co_await loop_->send(client_.get(), after.bytes());
        EXPECT_TRUE(sent_after);
        co_await gate.close();
    }
    // The same; between the volume is halved.
    Task<> halve_between(Bytes before, size_t said_bytes, Bytes after) {
        const auto halve = [this]() -> Task<> {
            const Result<Attributes> halved = co_await disk_->change_attributes({.size_bytes = 1 << 19});
            EXPECT_TRUE(halved);
        };
        co_await talk_around(std::move(before), said_bytes, halve, std::move(after));
    }
    // The same; between it turns out that these bytes are all.
    Task<> says_only(Bytes before, size_t said_bytes, Bytes after) {
        const auto check = [this, said_bytes]() -> Task<> {
            EXPECT_EQ(said_.size(), said_bytes);
            co_return;
        };
        co_await talk_around(std::move(before), said_bytes, check, std::move(after));
    }
    // Says half of what a handshake needs, and then nothing. Ends when the server has closed.
    Task<> stop_within_the_handshake(std::function<void()> meanwhile) {
        Gate gate;
        gate.spawn(serve());
        gate.spawn(collect());
        const Result<size_t> sent = co_await loop_->send(client_.get(), Bytes().client_flags().number(1u).bytes());
        EXPECT_TRUE(sent);
        co_await hear(greeting_size);
        meanwhile();
        co_await gate.close();
        EXPECT_EQ(said_.size(), greeting_size);
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
    std::unique_ptr<Loop> loop_;
    Share share_{16 << 20};
    Budget others_{.share = share_, .held_bytes_max = 0};
    size_t held_bytes_seen_ = 0;
    Settings settings_;
    Newcomers newcomers_{2};
    Workspace workspace_;
    MemoryVolumes volumes_;
    Sessions sessions_;
    std::shared_ptr<MemoryVolume> disk_;
    UniqueFd client_;
    int server_ = -1;  // the connection's
    std::unique_ptr<Connection> connection_;
    std::vector<std::byte> said_;
    bool says_no_more_ = false;
    Event said_more_;
    int left_bytes_seen_ = 0;  // on the server's socket, after an answer
    bool ended_ = false;       // it was told of the end, not of an error
};

}  // namespace tarn::nbd
