// NbdDriver: the kernel's nbd driver over generic netlink: makes block devices of sockets, changes them, and ends them.
//
// A call blocks for as long as the kernel takes: on a thread of its own. The process needs CAP_SYS_ADMIN.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "utils/result.hpp"

struct nl_sock;

namespace tarn {

class NbdDriver {
  public:
    struct Device {
        uint64_t size_bytes = 0;
        uint32_t block_size_bytes = 4096;
        uint64_t flags = 0;  // as the NBD protocol's transmission flags
        // For how long a request may take, and a device may be without a connection, until its requests fail.
        std::chrono::seconds request_timeout{};
        std::chrono::seconds reconnect_timeout{};
        std::string backend;  // the identifier that sysfs shows; who changes the device has to name it
    };

    // Errors: unsupported (the kernel has no nbd driver), io.
    static Result<NbdDriver> open();
    NbdDriver(NbdDriver&& other) noexcept;
    ~NbdDriver();

    // Makes a device of these sockets, each of them a hardware queue, with the N of its /dev/nbdN. From then on the
    // sockets are the kernel's, too. Errors: busy (that one is in use), refused (not permitted), io.
    Result<> connect(unsigned index, const Device& device, std::span<const int> sockets);
    // Gives the device sockets in place of those that broke, or without any, its size as it is now. Errors: not_found
    // (it is not connected, or not as this backend), refused, io.
    Result<> reconfigure(unsigned index, const Device& device, std::span<const int> sockets);
    // Requests on their way fail. Errors: not_found, refused, io.
    Result<> disconnect(unsigned index);

  private:
    class Message;
    NbdDriver(nl_sock* socket, int family) : socket_(socket), family_(family) {}
    Result<> ask(Message& message);

    nl_sock* socket_;
    int family_;
};

}  // namespace tarn
