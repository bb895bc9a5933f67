// TcpTransport: sockets on io_uring, for hosts that have a network between them.
//
// A vanished machine is noticed by keepalive, or by unacknowledged bytes, after 15 s. Made by the daemon; used by
// LinkedFabric through Transport.
#pragma once

#include <memory>
#include <string>

#include "coherence/fabric/transport/tcp/address.hpp"
#include "coherence/fabric/transport/transport.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class TcpTransport final : public Transport {
  public:
    using Resolve = Result<SocketAddress> (*)(const std::string& address);

    // Addresses: "192.0.2.1:7420", "[2001:db8::1]:7420", or a name and a port. Names of other hosts are looked up by
    // resolve, on a thread of its own. Errors: as resolve(); busy, io.
    static Result<std::unique_ptr<Transport>> listen(const std::string& address, Resolve resolve = tarn::resolve);

    Task<Result<std::unique_ptr<Connection>>> accept() override;
    std::unique_ptr<Connection> open(const std::string& address) override;
    void stop() override { Loop::current()->cancel_fd(listener_.get()); }
    TransportKind kind() const override { return TransportKind::tcp; }

  private:
    TcpTransport(UniqueFd listener, Resolve resolve) : listener_(std::move(listener)), resolve_(resolve) {}
    UniqueFd listener_;
    const Resolve resolve_;
};

}  // namespace tarn
