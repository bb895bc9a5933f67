// A socket that listens on a free TCP port of this machine.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "utils/unique_fd.hpp"

namespace tarn {

class TcpListener {
  public:
    TcpListener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        address_.sin_family = AF_INET;
        address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address_;
        auto* const address = reinterpret_cast<sockaddr*>(&address_);
        EXPECT_EQ(::bind(socket_.get(), address, size), 0);
        EXPECT_EQ(::listen(socket_.get(), 1), 0);
        EXPECT_EQ(::getsockname(socket_.get(), address, &size), 0);
    }
    // The client's end; it blocks.
    UniqueFd connected() const {
        UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
        return socket;
    }
    UniqueFd accepted() const { return UniqueFd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }

  private:
    UniqueFd socket_;
    sockaddr_in address_{};
};

}  // namespace tarn
