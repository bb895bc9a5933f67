// TcpTransport: sockets on io_uring, for hosts that have a network between them.
//
// A vanished machine is noticed by keepalive, or by unacknowledged bytes, after 15 s. Made by the daemon; used by
// LinkedFabric through Transport.
#pragma once

#include <memory>
#include <string>

#include "coherence/fabric/transport/transport.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class TcpTransport final : public Transport {
  public:
    // Addresses: "192.0.2.1:7420", "[2001:db8::1]:7420", or a name and a port. Errors: as resolve(); busy, io.
    static Result<std::unique_ptr<Transport>> listen(const std::string& address);

    Task<Result<std::unique_ptr<Connection>>> accept() override;
    Result<std::unique_ptr<Connection>> open(const std::string& address) override;
    void stop() override { Loop::current()->cancel_fd(listener_.get()); }

  private:
    explicit TcpTransport(UniqueFd listener) : listener_(std::move(listener)) {}
    UniqueFd listener_;
};

}  // namespace tarn
