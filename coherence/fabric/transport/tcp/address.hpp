// Socket addresses as people write them: "192.0.2.1:7420", "[2001:db8::1]:7420", "host.example:7420".
#pragma once

#include <sys/socket.h>

#include <string>

#include "utils/result.hpp"

namespace tarn {

class SocketAddress {
  public:
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
    socklen_t size() const { return size_; }
    int family() const { return storage_.ss_family; }

  private:
    friend Result<SocketAddress> resolve(const std::string& address);
    sockaddr_storage storage_{};
    socklen_t size_ = 0;
};

// Errors: invalid without a port, not_found for an unknown name. Numeric addresses never leave this machine.
Result<SocketAddress> resolve(const std::string& address);
// The address of a connected socket's other end, for logs.
std::string peer_name(int fd);

}  // namespace tarn
