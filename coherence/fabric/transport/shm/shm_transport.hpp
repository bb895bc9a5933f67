// ShmTransport: shared memory, for hosts that run on one machine.
//
// They meet over a Unix socket, at which nobody but processes of the same user and of root is heard. The host that
// connects makes the memory, and passes it on with its first byte. Made by the daemon; used by LinkedFabric through
// Transport.
#pragma once

#include <memory>
#include <string>

#include "coherence/fabric/transport/transport.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class ShmTransport final : public Transport {
  public:
    // path: of the socket. Errors: as listen_unix(); invalid, if others could not be told of it.
    static Result<std::unique_ptr<Transport>> listen(const std::string& path);
    ~ShmTransport() override;

    Task<Result<std::unique_ptr<Connection>>> accept() override;
    std::unique_ptr<Connection> open(const std::string& path) override;
    void stop() override { Loop::current()->cancel_fd(listener_.get()); }
    TransportKind kind() const override { return TransportKind::shm; }
    std::string offer() const override;
    std::optional<std::string> address_in(const std::string& offer) const override;

  private:
    ShmTransport(std::string path, UniqueFd listener) : path_(std::move(path)), listener_(std::move(listener)) {}

    const std::string path_;  // whole
    const UniqueFd listener_;
};

}  // namespace tarn
