// TcpChannel: one connected socket, as a link uses it.
//
// Available bytes are received in bulk, without the ring; the ring serves only to wait, and to send what the socket
// does not take at once. Made from a connection of TcpTransport; any stream socket will do.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <vector>

#include "coherence/fabric/transport/transport.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class TcpChannel final : public Channel {
  public:
    TcpChannel(Loop& loop, UniqueFd fd)
        : loop_(loop), fd_(std::move(fd)), readiness_(loop, fd_.get(), POLLIN | POLLRDHUP) {}

    size_t try_send(std::span<const std::byte> bytes) override;
    Task<Result<size_t>> send(std::span<const std::byte> bytes) override;
    Task<Result<Received>> receive(std::span<std::byte> page, size_t taken) override;
    void shut_down() override { ::shutdown(fd_.get(), SHUT_RDWR); }
    Task<> close() override { return readiness_.close(); }

  private:
    Loop& loop_;
    const UniqueFd fd_;
    Readiness readiness_;
    bool readable_ = true;  // more bytes may be there than were taken
    bool hung_up_ = false;
    std::vector<std::byte> buffer_ = std::vector<std::byte>(buffer_size);
    size_t filled_ = 0;

    static constexpr size_t buffer_size = 256 << 10;
};

}  // namespace tarn
