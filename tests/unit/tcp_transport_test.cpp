// What TcpTransport does beyond transport_conformance_test.cpp: names of hosts.
#include "coherence/fabric/transport/tcp/tcp_transport.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <semaphore>

#include "tests/support/turns.hpp"
#include "utils/sync.hpp"

namespace tarn {
namespace {

std::binary_semaphore name_is_known{0};
std::atomic<bool> name_came_in_time;

Result<SocketAddress> wait_for_name(const std::string&) {
    name_came_in_time = name_is_known.try_acquire_for(std::chrono::seconds(10));
    return resolve("127.0.0.1:9");
}

Task<> connect(Connection& connection, std::optional<Result<>>& result) {
    result = co_await connection.connect();
}

// What came of the connection, which is shut down once the loop has had its turns. None: it ended before.
Task<std::optional<Result<>>> give_up(Loop& loop, Connection& connection) {
    std::optional<Result<>> connected;
    Gate gate;
    gate.spawn(connect(connection, connected));
    (void)co_await turns(loop);
    const bool has_ended = connected.has_value();
    connection.shut_down();
    name_is_known.release();
    co_await gate.close();
    co_return has_ended ? std::nullopt : connected;
}

TEST(TcpTransportTest, the_loop_goes_on_while_a_name_is_looked_up) {
    const std::unique_ptr<Loop> loop = std::move(*Loop::create());
    const auto transport = TcpTransport::listen("127.0.0.1:0", wait_for_name);
    ASSERT_TRUE(transport);
    const std::unique_ptr<Connection> connection = (*transport)->open("host.example:9");
    const std::optional<Result<>> connected = loop->run_until_done(give_up(*loop, *connection));
    EXPECT_TRUE(name_came_in_time);
    ASSERT_TRUE(connected && !*connected);
    EXPECT_EQ(connected->error().code, Errc::cancelled);
}

TEST(TcpTransportTest, an_address_without_a_port_is_refused) {
    const std::unique_ptr<Loop> loop = std::move(*Loop::create());
    const auto transport = TcpTransport::listen("127.0.0.1:0");
    ASSERT_TRUE(transport);
    const Result<> connected = loop->run_until_done((*transport)->open("host.example")->connect());
    ASSERT_FALSE(connected);
    EXPECT_EQ(connected.error().code, Errc::invalid);
}

}  // namespace
}  // namespace tarn
