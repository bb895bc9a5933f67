// What the NBD server does before a connection is one of its shard's: sockets that others made, and who is let in.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <functional>
#include <optional>

#include "frontends/nbd/server.hpp"
#include "tests/support/memory_volumes.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/nbd_conversation.hpp"
#include "utils/mapping.hpp"
#include "utils/unix_socket.hpp"

namespace tarn::nbd {
namespace {

class NbdServer : public testing::Test {
  protected:
    NbdServer() : loop_(std::move(*Loop::create())), server_({loop_.get()}, volumes_, size_t{1} << 20) {}

    // As service managers do it.
    static UniqueFd tcp_socket(int type, bool listens) {
        UniqueFd socket(::socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        if (listens) EXPECT_EQ(::listen(socket.get(), 10), 0);
        return socket;
    }
    static UniqueFd connected_to(const std::string& path) {
        const sockaddr_un address = *unix_address(path);
        UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        return client;
    }
    static UniqueFd client_of(const Server::Place& place) {
        UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(place.port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        return client;
    }
    // How many bytes the server greets a client with.
    size_t greeting_for(UniqueFd client, const std::function<void()>& meanwhile = [] {}) {
        size_t received = 0;
        const auto talk = [&](UniqueFd socket) -> Task<> {
            Gate gate;
            gate.spawn(server_.serve());
            std::byte bytes[100];
            const Result<size_t> count = co_await loop_->receive(socket.get(), bytes);
            received = count.value_or(0);
            meanwhile();
            socket.reset();
            co_await server_.stop();
            co_await gate.close();
        };
        loop_->run_until_done(talk(std::move(client)));
        return received;
    }

    MemoryVolumes volumes_;
    std::unique_ptr<Loop> loop_;
    Server server_;
};

TEST_F(NbdServer, accepts_from_a_tcp_socket_that_was_passed_to_it) {
    const Result<Server::Place> place = server_.listen_on(tcp_socket(SOCK_STREAM, true));
    ASSERT_TRUE(place);
    EXPECT_EQ(place->host, "127.0.0.1");
    EXPECT_TRUE(place->path.empty());
    EXPECT_EQ(greeting_for(client_of(*place)), 18u);
}

TEST_F(NbdServer, a_tcp_socket_that_was_passed_to_it_is_limited_to_networks) {
    server_.set_admission({.networks = {*Network::parse("192.0.2.0/24")}});
    const Result<Server::Place> place = server_.listen_on(tcp_socket(SOCK_STREAM, true));
    ASSERT_TRUE(place);
    EXPECT_EQ(greeting_for(client_of(*place)), 0u);
}

// A client whose machine has lost its power is noticed, and its exclusive volume free again.
TEST_F(NbdServer, connections_over_tcp_are_kept_alive) {
    const Result<Server::Place> place = server_.listen_on(tcp_socket(SOCK_STREAM, true));
    ASSERT_TRUE(place);
    UniqueFd client = client_of(*place);
    sockaddr_in address{};
    socklen_t size = sizeof address;
    ASSERT_EQ(::getsockname(client.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    std::optional<int> is_kept_alive;
    const auto look = [&] {
        // The server's end: the socket of this process whose peer the client is.
        for (int fd = 0; fd < 1024; ++fd) {
            sockaddr_in peer{};
            size = sizeof peer;
            if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || peer.sin_family != AF_INET ||
                peer.sin_port != address.sin_port)
                continue;
            int value = 0;
            size = sizeof value;
            EXPECT_EQ(::getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &size), 0);
            is_kept_alive = value;
        }
    };
    EXPECT_EQ(greeting_for(std::move(client), look), 18u);
    EXPECT_EQ(is_kept_alive, 1);
}

// Which handshake has to make room, of clients that come one after the other and say nothing.
TEST_F(NbdServer, at_most_half_of_all_connections_and_no_more_than_the_setting_are_in_their_handshake) {
    struct Case {
        size_t connections_max;
        size_t handshakes_max;
        size_t fit;
    };
    for (const Case& each : {Case{6, 100, 3}, Case{100, 2, 2}, Case{1, 100, 1}}) {
        const ScratchDirectory directory;
        const std::string path = directory.path() / "nbd.sock";
        Server server({loop_.get()}, volumes_, size_t{1} << 20,
                      {.connections_max = each.connections_max, .handshakes_max = each.handshakes_max});
        ASSERT_TRUE(server.listen_unix(path));
        const auto come = [&]() -> Task<> {
            Gate gate;
            gate.spawn(server.serve());
            std::vector<UniqueFd> clients;
            std::byte greeting[18];
            const size_t count = std::min(each.fit + 1, each.connections_max);
            while (clients.size() < count) {
                clients.push_back(connected_to(path));
                const Result<size_t> greeted = co_await loop_->receive(clients.back().get(), greeting);
                EXPECT_EQ(greeted.value_or(0), sizeof greeting);
            }
            // The oldest is ended if there was one too many, and no other one.
            for (size_t i = 0; i < count; ++i) {
                const bool is_ended = ::recv(clients[i].get(), greeting, 1, MSG_DONTWAIT) == 0;
                EXPECT_EQ(is_ended, i == 0 && count > each.fit) << each.connections_max << ", client " << i;
            }
            clients.clear();
            co_await server.stop();
            co_await gate.close();
        };
        loop_->run_until_done(come());
        EXPECT_EQ(server.connection_count(), 0u);
    }
}

TEST_F(NbdServer, leaves_a_unix_socket_that_was_passed_to_it_where_it_is) {
    const ScratchDirectory directory;
    const std::string path = directory.path() / "nbd.sock";
    {
        Server server({loop_.get()}, volumes_, size_t{1} << 20);
        const Result<Server::Place> place = server.listen_on(std::move(*listen_unix(path, 0600)));
        ASSERT_TRUE(place);
        EXPECT_EQ(place->path, path);
    }
    EXPECT_EQ(::access(path.c_str(), F_OK), 0);
}

TEST_F(NbdServer, a_unix_socket_that_was_passed_to_it_is_not_limited_to_networks) {
    const ScratchDirectory directory;
    const std::string path = directory.path() / "nbd.sock";
    server_.set_admission({.networks = {*Network::parse("192.0.2.0/24")}});
    ASSERT_TRUE(server_.listen_on(std::move(*listen_unix(path, 0600))));
    EXPECT_EQ(greeting_for(connected_to(path)), 18u);
}

TEST_F(NbdServer, refuses_sockets_that_nobody_can_connect_to) {
    EXPECT_EQ(server_.listen_on(tcp_socket(SOCK_STREAM, false)).error().code, Errc::invalid);
    EXPECT_EQ(server_.listen_on(tcp_socket(SOCK_DGRAM, false)).error().code, Errc::invalid);
    EXPECT_EQ(server_.listen_on(UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC))).error().code, Errc::invalid);
}

TEST_F(NbdServer, who_comes_when_there_are_as_many_connections_as_may_be_is_refused_and_ends_no_other) {
    const ScratchDirectory directory;
    const std::string path = directory.path() / "nbd.sock";
    Server server({loop_.get()}, volumes_, size_t{1} << 20, {.connections_max = 1});
    ASSERT_TRUE(server.listen_unix(path));
    std::array<std::byte, 18> greeting;
    const auto greeted = [&](const UniqueFd& client) -> Task<size_t> {
        const Result<size_t> count = co_await loop_->receive(client.get(), greeting);
        EXPECT_TRUE(count);
        co_return count.value_or(0);
    };
    const auto come = [&]() -> Task<> {
        Gate gate;
        gate.spawn(server.serve());
        UniqueFd first = connected_to(path);
        EXPECT_EQ(co_await greeted(first), greeting.size());
        for (int i = 0; i < 2; ++i) {
            const UniqueFd refused = connected_to(path);
            EXPECT_EQ(co_await greeted(refused), 0u);
        }
        EXPECT_EQ(server.connection_count(), 1u);
        EXPECT_EQ(::recv(first.get(), greeting.data(), 1, MSG_DONTWAIT), -1) << "it is still connected";
        first.reset();
        while (server.connection_count() > 0) co_await Yield(*loop_);
        const UniqueFd next = connected_to(path);
        EXPECT_EQ(co_await greeted(next), greeting.size());
        co_await server.stop();
        co_await gate.close();
    };
    loop_->run_until_done(come());
}

// A process that stops without having made everything durable leaves its memory to the next one.
TEST_F(NbdServer, the_sessions_of_its_clients_do_not_end_as_it_stops) {
    const ScratchDirectory directory;
    const std::string path = directory.path() / "nbd.sock";
    volumes_.add("disk", uint64_t{1} << 20, true);
    const Mapping memory = std::move(*Mapping::create(SessionBook::size_bytes));
    {
        Server server({loop_.get()}, volumes_, size_t{1} << 20, {}, {}, memory.bytes());
        ASSERT_TRUE(server.listen_unix(path));
        const auto come = [&]() -> Task<> {
            Gate gate;
            gate.spawn(server.serve());
            const UniqueFd client = connected_to(path);
            const Bytes hello = Bytes().client_flags().option(Option::go, info_payload("disk"));
            EXPECT_TRUE(co_await loop_->send(client.get(), hello.bytes()));
            std::vector<std::byte> bytes(greeting_size + go_replies_size);
            EXPECT_EQ((co_await loop_->receive(client.get(), bytes, MSG_WAITALL)).value_or(0), bytes.size());
            co_await server.stop();
            co_await gate.close();
        };
        loop_->run_until_done(come());
    }
    const std::vector<SessionBook::Left> left = SessionBook(memory.bytes()).take_left();
    ASSERT_EQ(left.size(), 1u);
    EXPECT_EQ(left[0].client.process, ::getpid());
}

}  // namespace
}  // namespace tarn::nbd
