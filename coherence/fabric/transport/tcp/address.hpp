// Socket addresses as people write them: "192.0.2.1:7420", "[2001:db8::1]:7420", "host.example:7420".
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>

#include "utils/result.hpp"

namespace tarn {

class SocketAddress;
// Errors: invalid without a port, not_found for an unknown name. A numeric address is taken at once; what a name means
// other machines may have to say, and until they do the thread waits.
Result<SocketAddress> resolve(const std::string& address);
// None for names.
std::optional<SocketAddress> numeric_address(const std::string& address);

class SocketAddress {
  public:
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
    socklen_t size() const { return size_; }
    int family() const { return storage_.ss_family; }

  private:
    friend Result<SocketAddress> look_up(const std::string& address, int flags);
    sockaddr_storage storage_{};
    socklen_t size_ = 0;
};

// The address of a connected socket's other end, for logs.
std::string peer_name(int fd);

}  // namespace tarn
