// MemoryKeeper: hands tarnd's memory to a process that keeps it while no tarnd runs: the service manager (systemd's
// descriptor store), or a tarn-keeper that tarnd starts itself. The service manager closes it when the service is
// stopped, so for a stop a tarn-keeper takes it there, too.
#pragma once

#include <optional>
#include <string>

#include "utils/result.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class MemoryKeeper {
  public:
    // socket: the path of tarn-keeper's socket, when it is one.
    explicit MemoryKeeper(std::string socket) : socket_(std::move(socket)) {}

    // The memory that an earlier process left; most of the time there is none. Once per process. Errors: io, refused
    // (whoever listens there is not of our user).
    Result<std::optional<UniqueFd>> take();
    // The memory outlives this process from here on. Errors: io, refused, not_found (no tarn-keeper beside tarnd), and
    // those of listen_unix.
    Result<> keep(int fd);
    // Before a stop, which may end before everything is durable: the memory outlives that, too.
    void keep_beyond_stop(int fd);
    // The memory is not needed any more.
    void drop();

  private:
    Result<UniqueFd> connect() const;
    Result<> start() const;
    Result<std::optional<UniqueFd>> take_from_process() const;
    Result<> give_to_process(int fd) const;
    void end_process() const;

    std::string socket_;
};

}  // namespace tarn
