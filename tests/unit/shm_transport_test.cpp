// What only shared memory has to refuse, and how its channels sleep and wake. What every transport does is in
// transport_conformance_test.cpp.
#include "coherence/fabric/transport/shm/shm_transport.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "coherence/fabric/transport/shm/segment.hpp"
#include "coherence/fabric/transport/shm/shm_channel.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/turns.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {
namespace {

class ShmTransportTest : public testing::Test {
  protected:
    // A process that connects, and is played by the test.
    UniqueFd stranger() const {
        const sockaddr_un address = *unix_address(path_);
        UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        return socket;
    }
    static void pass(const UniqueFd& socket, char byte, std::vector<int> fds) {
        iovec piece{.iov_base = &byte, .iov_len = 1};
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(8 * sizeof(int))> control{};
        msghdr message{};
        message.msg_iov = &piece;
        message.msg_iovlen = 1;
        if (!fds.empty()) {
            message.msg_control = control.data();
            message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
            cmsghdr* const header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
            std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
        }
        ASSERT_EQ(::sendmsg(socket.get(), &message, MSG_NOSIGNAL), 1);
    }
    std::unique_ptr<Connection> accept() { return std::move(*loop_->run_until_done(transport_->accept())); }
    Result<size_t> receive(Connection& connection) {
        std::byte byte{};
        return loop_->run_until_done(connection.receive(std::span(&byte, 1)));
    }
    std::string refusal(Connection& connection) {
        const Result<size_t> received = receive(connection);
        return received ? std::string() : std::string(received.error().where);
    }
    static size_t open_files() {
        const std::filesystem::directory_iterator files("/proc/self/fd");
        return static_cast<size_t>(std::distance(begin(files), end(files)));
    }
    // The channel of this side; the other one is the test's, which has `theirs`.
    std::unique_ptr<Channel> join(const UniqueFd& socket, const Segment& theirs) {
        pass(socket, 'M', {theirs.fd()});
        const std::byte hello{};
        EXPECT_EQ(::send(socket.get(), &hello, 1, MSG_NOSIGNAL), 1);
        const std::unique_ptr<Connection> connection = accept();
        EXPECT_EQ(receive(*connection).value_or(0), 1u);
        return connection->become_channel(*loop_);
    }
    void close(Channel& channel) { loop_->run_until_done(channel.close()); }

    const ScratchDirectory directory_;
    const std::string path_ = directory_ / "fabric.sock";
    std::unique_ptr<Loop> loop_ = std::move(*Loop::create());
    std::unique_ptr<Transport> transport_ = std::move(*ShmTransport::listen(path_));
};

TEST_F(ShmTransportTest, what_does_not_begin_with_one_memory_is_refused_and_leaves_nothing_open) {
    const std::unique_ptr<Segment> memory = std::move(*Segment::create());
    const size_t before = open_files();
    const int fd = memory->fd();
    for (const auto& [byte, fds] :
         {std::pair<char, std::vector<int>>{'M', {}}, {'M', {fd, fd}}, {'M', {fd, fd, fd, fd, fd}}, {'X', {fd}}}) {
        const UniqueFd socket = stranger();
        const std::unique_ptr<Connection> connection = accept();
        pass(socket, byte, fds);
        EXPECT_EQ(refusal(*connection), "fabric.shm: it does not begin with its memory");
    }
    {
        const std::unique_ptr<Connection> connection = [&] {
            const UniqueFd socket = stranger();
            return accept();
        }();
        EXPECT_EQ(receive(*connection).error().code, Errc::closed);
    }
    EXPECT_EQ(open_files(), before);
}

TEST_F(ShmTransportTest, a_peer_whose_positions_make_no_sense_is_hung_up_on) {
    for (const bool as_writer : {true, false}) {
        const std::unique_ptr<Segment> theirs = std::move(*Segment::create());
        const UniqueFd socket = stranger();
        const std::unique_ptr<Channel> channel = join(socket, *theirs);
        if (as_writer) {
            theirs->outgoing().words->written = Segment::ring_bytes + 1;
            const auto received = loop_->run_until_done(channel->receive({}, 0));
            EXPECT_EQ(received.error().code, Errc::protocol);
        } else {
            const std::vector<std::byte> much(Segment::ring_bytes);
            ASSERT_EQ(channel->try_send(much), much.size());
            theirs->incoming().words->taken = Segment::ring_bytes + 1;
            const auto sent = loop_->run_until_done(channel->send(much));
            EXPECT_EQ(sent.error().code, Errc::protocol);
        }
        close(*channel);
    }
}

TEST_F(ShmTransportTest, what_was_written_before_the_end_comes_before_it) {
    const std::unique_ptr<Segment> theirs = std::move(*Segment::create());
    UniqueFd socket = stranger();
    const std::unique_ptr<Channel> channel = join(socket, *theirs);
    RingWriter writer(theirs->outgoing());
    const std::vector<std::byte> bytes(1000, std::byte{7});
    ASSERT_EQ(writer.write(bytes), bytes.size());
    socket.reset();
    loop_->run_until_done(turns(*loop_));
    const auto received = loop_->run_until_done(channel->receive({}, 0));
    ASSERT_TRUE(received);
    EXPECT_EQ(received->bytes.size(), bytes.size());
    EXPECT_EQ(loop_->run_until_done(channel->receive({}, bytes.size())).error().code, Errc::closed);
    EXPECT_EQ(channel->try_send(bytes), 0u);
    close(*channel);
}

// One that does not read the socket, and one that sends more wake-ups than anybody needs.
TEST_F(ShmTransportTest, wake_ups_without_end_do_no_harm) {
    const std::unique_ptr<Segment> theirs = std::move(*Segment::create());
    const UniqueFd socket = stranger();
    const std::unique_ptr<Channel> channel = join(socket, *theirs);
    const std::vector<std::byte> wakes(256 << 10);
    RingWriter writer(theirs->outgoing());
    for (unsigned round = 0; round < 20; ++round) {
        (void)::send(socket.get(), wakes.data(), wakes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        theirs->incoming().words->reader_waits = 1;
        const std::byte byte{static_cast<unsigned char>(round)};
        ASSERT_EQ(channel->try_send(std::span(&byte, 1)), 1u);
        ASSERT_EQ(writer.write(std::span(&byte, 1)), 1u);
        const auto received = loop_->run_until_done(channel->receive({}, round == 0 ? 0 : 1));
        ASSERT_TRUE(received);
        ASSERT_EQ(received->bytes.front(), byte);
    }
    close(*channel);
}

// A record that fills the ring is not whole yet; the rest needs room.
TEST_F(ShmTransportTest, what_fills_the_ring_and_is_not_taken_makes_room_for_more) {
    const std::unique_ptr<Segment> theirs = std::move(*Segment::create());
    const UniqueFd socket = stranger();
    const std::unique_ptr<Channel> channel = join(socket, *theirs);
    RingWriter writer(theirs->outgoing());
    const std::vector<std::byte> bytes(Segment::ring_bytes, std::byte{3});
    ASSERT_EQ(writer.write(bytes), bytes.size());
    size_t received = 0;
    const auto receive_twice = [&]() -> Task<> {
        for (unsigned time = 0; time < 2; ++time) {
            const auto more = co_await channel->receive({}, 0);
            received = more ? more->bytes.size() : 0;
        }
    };
    Gate receiving;
    receiving.spawn(receive_twice());
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(received, bytes.size());
    EXPECT_EQ(writer.write(std::span(bytes).first(10)), 10u);
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(received, bytes.size() + 10);
    channel->shut_down();
    loop_->run_until_done(receiving.close());
    close(*channel);
}

TEST_F(ShmTransportTest, who_waits_for_room_is_woken_once_there_is_some) {
    const std::unique_ptr<Segment> theirs = std::move(*Segment::create());
    const UniqueFd socket = stranger();
    const std::unique_ptr<Channel> channel = join(socket, *theirs);
    RingWriter writer(theirs->outgoing());
    const std::vector<std::byte> bytes(Segment::ring_bytes);
    ASSERT_EQ(writer.write(bytes), bytes.size());
    ASSERT_TRUE(writer.begin_wait());
    std::byte wake{};
    ASSERT_EQ(loop_->run_until_done(channel->receive({}, 0))->bytes.size(), bytes.size());
    EXPECT_EQ(::recv(socket.get(), &wake, 1, MSG_DONTWAIT), -1);
    Gate receiving;
    const auto take = [&]() -> Task<> { (void)co_await channel->receive({}, 100); };
    receiving.spawn(take());
    EXPECT_EQ(::recv(socket.get(), &wake, 1, MSG_DONTWAIT), 1);
    channel->shut_down();
    loop_->run_until_done(receiving.close());
    close(*channel);
}

// Each on a loop of its own, and most of the time asleep.
TEST_F(ShmTransportTest, who_sleeps_is_woken) {
    constexpr unsigned rounds = 2000;
    const auto answer = [](Channel& channel) -> Task<> {
        for (size_t taken = 0;;) {
            const auto received = co_await channel.receive({}, taken);
            if (!received) break;
            taken = received->bytes.size();
            for (std::span<const std::byte> rest = received->bytes; !rest.empty();)
                rest = rest.subspan((co_await channel.send(rest)).value_or(rest.size()));
        }
        co_await channel.close();
    };
    std::jthread other([&] {
        const auto loop = std::move(*Loop::create());
        const auto serve = [&]() -> Task<> {
            const auto connection = transport_->open(path_);
            EXPECT_TRUE(co_await connection->connect());
            const std::byte hello{};
            EXPECT_EQ((co_await connection->send(std::span(&hello, 1))).value_or(0), 1u);
            const std::unique_ptr<Channel> channel = connection->become_channel(*loop);
            co_await answer(*channel);
        };
        loop->run_until_done(serve());
    });
    const std::unique_ptr<Connection> connection = accept();
    ASSERT_EQ(receive(*connection).value_or(0), 1u);
    const std::unique_ptr<Channel> channel = connection->become_channel(*loop_);
    size_t taken = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        const std::byte byte{static_cast<unsigned char>(round)};
        ASSERT_EQ(loop_->run_until_done(channel->send(std::span(&byte, 1))).value_or(0), 1u);
        const auto received = loop_->run_until_done(channel->receive({}, taken));
        ASSERT_TRUE(received);
        ASSERT_EQ(received->bytes.size(), 1u);
        ASSERT_EQ(received->bytes.front(), byte);
        taken = 1;
    }
    channel->shut_down();
    close(*channel);
}

// The path that is given fits into an address, but others could not be told where that is.
TEST_F(ShmTransportTest, a_socket_that_is_too_deep_to_be_told_of_is_not_made) {
    const std::filesystem::path here = std::filesystem::current_path();
    const std::filesystem::path deep =
        std::filesystem::path(directory_ / std::string(200, 'd')) / std::string(100, 'e');
    std::filesystem::create_directories(deep);
    std::filesystem::current_path(deep);
    EXPECT_EQ(ShmTransport::listen("socket").error().code, Errc::invalid);
    EXPECT_FALSE(std::filesystem::exists("socket"));
    std::filesystem::current_path(here);
}

TEST_F(ShmTransportTest, who_makes_the_memory_is_known_by_its_machine) {
    const std::string offer = transport_->offer();
    EXPECT_EQ(transport_->address_in(offer), path_);
    EXPECT_LE(offer.size(), Transport::offer_size_max);
    EXPECT_EQ(transport_->address_in("another machine"), std::nullopt);
    EXPECT_EQ(transport_->address_in(""), std::nullopt);
    EXPECT_TRUE(std::filesystem::exists(path_));
    transport_.reset();
    EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace tarn
