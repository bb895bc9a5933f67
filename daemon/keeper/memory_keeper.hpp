// MemoryKeeper: where tarnd's memory is while no tarnd runs: with the service manager (systemd's descriptor store), or
// with a tarn-keeper that tarnd starts itself. The service manager lets go of it when the service is stopped, so for a
// stop it is a tarn-keeper there, too.
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

    // What the process before has left; nothing, most of the time. Once per process. Errors: io, refused (whoever
    // listens there is not of our user).
    Result<std::optional<UniqueFd>> take();
    // From here on it outlives this process. Errors: io, refused, not_found (no tarn-keeper beside tarnd), and those of
    // listen_unix.
    Result<> keep(int fd);
    // Before a stop, which may not come to make everything durable: it outlives that, too.
    void keep_beyond_stop(int fd);
    // It is worth nothing any more.
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
