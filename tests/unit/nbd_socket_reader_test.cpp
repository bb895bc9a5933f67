// What is looked at and taken later: the same bytes in the same order, and not too many of them left on the socket.
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <numeric>
#include <random>
#include <vector>

#include "frontends/nbd/socket_reader.hpp"
#include "tests/support/tcp_listener.hpp"
#include "utils/unique_fd.hpp"

namespace tarn::nbd {
namespace {

class SocketReaderTest : public testing::Test {
  protected:
    void SetUp() override {
        int pair[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        ours_ = UniqueFd(pair[0]);
        theirs_ = UniqueFd(pair[1]);
    }

    // Bytes that tell where they were in the stream.
    void send(size_t size) {
        std::vector<unsigned char> bytes(size);
        for (unsigned char& byte : bytes) byte = value_at(sent_++);
        ASSERT_EQ(::send(theirs_.get(), bytes.data(), size, 0), static_cast<ssize_t>(size));
    }
    static unsigned char value_at(size_t offset) { return static_cast<unsigned char>(offset * 7 + offset / 251); }

    ssize_t receive(SocketReader& reader, bool late, size_t room = 64 * 1024) {
        std::vector<unsigned char> bytes(room);
        iovec vector{bytes.data(), bytes.size()};
        msghdr message{};
        message.msg_iov = &vector;
        message.msg_iovlen = 1;
        const ssize_t count = reader.receive(message, late, scratch_);
        for (ssize_t i = 0; i < count; ++i) EXPECT_EQ(bytes[static_cast<size_t>(i)], value_at(received_++));
        return count;
    }
    size_t left_on_socket() const {
        int count = 0;
        EXPECT_EQ(::ioctl(ours_.get(), FIONREAD, &count), 0);
        return static_cast<size_t>(count);
    }

    UniqueFd ours_;
    UniqueFd theirs_;
    size_t sent_ = 0;
    size_t received_ = 0;
    std::vector<std::byte> scratch_ = std::vector<std::byte>(1000);
};

constexpr size_t request = 28;

TEST_F(SocketReaderTest, so_many_requests_are_taken_together) {
    SocketReader reader(ours_.get());
    for (unsigned i = 0; i < 3 * SocketReader::looks_max; ++i) {
        send(request);
        ASSERT_EQ(receive(reader, true), static_cast<ssize_t>(request));
        EXPECT_EQ(left_on_socket(), (i % SocketReader::looks_max + 1) * request);
        EXPECT_EQ(reader.looked_at_bytes(), left_on_socket());
    }
}

TEST_F(SocketReaderTest, what_must_not_be_late_is_taken_and_all_before_it) {
    SocketReader reader(ours_.get());
    send(request);
    ASSERT_EQ(receive(reader, true), static_cast<ssize_t>(request));
    send(request);
    ASSERT_EQ(receive(reader, false), static_cast<ssize_t>(request));
    EXPECT_EQ(left_on_socket(), 0u);
    send(request);
    ASSERT_EQ(receive(reader, true), static_cast<ssize_t>(request));
    EXPECT_EQ(left_on_socket(), request);
}

TEST_F(SocketReaderTest, large_requests_are_taken_at_once) {
    SocketReader reader(ours_.get());
    send(request);
    ASSERT_EQ(receive(reader, true), static_cast<ssize_t>(request));
    constexpr size_t large = SocketReader::look_bytes_max + 1;
    for (int i = 0; i < 2; ++i) {
        send(large);
        ASSERT_EQ(receive(reader, true), static_cast<ssize_t>(large));
        EXPECT_EQ(left_on_socket(), 0u);
    }
    send(request);
    ASSERT_EQ(receive(reader, true), static_cast<ssize_t>(request));
    EXPECT_EQ(left_on_socket(), 0u);
    send(request);
    ASSERT_EQ(receive(reader, true), static_cast<ssize_t>(request));
    EXPECT_EQ(left_on_socket(), request) << "they are small again";
}

TEST_F(SocketReaderTest, few_bytes_are_left_on_the_socket) {
    SocketReader reader(ours_.get());
    constexpr size_t size = SocketReader::looked_at_bytes_max / 3;
    for (unsigned i = 0; i < 10; ++i) {
        send(size);
        ASSERT_EQ(receive(reader, true), static_cast<ssize_t>(size));
        EXPECT_EQ(left_on_socket(), (i % 4 + 1) * size);
    }
}

TEST_F(SocketReaderTest, no_byte_is_lost_or_repeated) {
    SocketReader reader(ours_.get());
    std::mt19937 random(1);
    for (unsigned i = 0; i < 20'000; ++i) {
        if (sent_ - received_ < 60'000) send(1 + random() % (random() % 8 == 0 ? 20'000 : 100));
        (void)receive(reader, random() % 4 != 0, 1 + random() % 30'000);
        if (random() % 50 == 0) reader.take(scratch_);
    }
    while (receive(reader, false) > 0) continue;
    EXPECT_EQ(received_, sent_);
}

TEST_F(SocketReaderTest, without_more_it_says_so_and_the_end_comes_last) {
    SocketReader reader(ours_.get());
    send(request);
    ASSERT_EQ(receive(reader, true), static_cast<ssize_t>(request));
    EXPECT_EQ(receive(reader, true), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(left_on_socket(), request);
    send(request);
    theirs_.reset();
    EXPECT_EQ(receive(reader, true), static_cast<ssize_t>(request));
    EXPECT_EQ(receive(reader, true), 0);
    EXPECT_EQ(receive(reader, false), 0);
}

TEST_F(SocketReaderTest, once_all_is_taken_the_other_end_sees_an_end_and_no_reset) {
    SocketReader reader(ours_.get());
    send(request);
    ASSERT_EQ(receive(reader, true), static_cast<ssize_t>(request));
    reader.take(scratch_);
    EXPECT_EQ(reader.looked_at_bytes(), 0u);
    ours_.reset();
    char byte = 0;
    EXPECT_EQ(::recv(theirs_.get(), &byte, 1, 0), 0);
}

TEST_F(SocketReaderTest, nothing_is_left_on_a_tcp_socket) {
    const TcpListener listener;
    theirs_ = listener.connected();
    ours_ = listener.accepted();
    SocketReader reader(ours_.get());
    for (unsigned i = 0; i < 3; ++i) {
        send(request);
        while (receive(reader, true) < 0) continue;
        EXPECT_EQ(left_on_socket(), 0u);
    }
}

}  // namespace
}  // namespace tarn::nbd
