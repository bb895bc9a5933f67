// NbdDriver: the kernel's nbd driver: makes block devices of sockets, changes them, and ends them. NetlinkDriver asks
// it over generic netlink; tests play one.
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

    virtual ~NbdDriver() = default;
    // Whether there is one that this process may use. Errors: unsupported (the kernel has no nbd driver), refused (not
    // permitted), io. The others have these errors, too.
    virtual Result<> is_there() = 0;
    // Makes a device of these sockets, each of them a hardware queue, with the N of its /dev/nbdN. From then on the
    // sockets are the kernel's, too. Errors: busy (that one is in use).
    virtual Result<> connect(unsigned index, const Device& device, std::span<const int> sockets) = 0;
    // Gives the device sockets in place of those that broke, or without any, its size as it is now. Errors: not_found
    // (it is not connected, or not as this backend).
    virtual Result<> reconfigure(unsigned index, const Device& device, std::span<const int> sockets) = 0;
    // Requests on their way fail. Errors: not_found.
    virtual Result<> disconnect(unsigned index) = 0;
};

class NetlinkDriver final : public NbdDriver {
  public:
    Result<> is_there() override;
    Result<> connect(unsigned index, const Device& device, std::span<const int> sockets) override;
    Result<> reconfigure(unsigned index, const Device& device, std::span<const int> sockets) override;
    Result<> disconnect(unsigned index) override;
};

}  // namespace tarn
