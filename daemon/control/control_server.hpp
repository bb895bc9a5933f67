// ControlServer: the control socket. HTTP and JSON for administrators of this host; the socket's mode is the guard.
//
// All on one shard's loop: a connection is a coroutine, so a client that sends half a line and falls silent costs
// nothing but its place. At the limit the one that was idle longest makes room.
#pragma once

#include <list>
#include <string>

#include "daemon/control/control_api.hpp"
#include "utils/loop.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class ControlServer {
  public:
    static constexpr size_t connections_max = 64;
    // A request takes no longer than this to arrive, and a connection is idle no longer.
    static constexpr std::chrono::seconds timeout{30};

    // Errors: see listen_unix.
    static Result<std::unique_ptr<ControlServer>> create(Loop& loop, const std::string& path, ControlApi& api);
    ControlServer(const ControlServer&) = delete;
    // After serve() has ended.
    ~ControlServer();

    // Serves until stop(); then lets requests in progress finish. Errors: io.
    Task<Result<>> serve();
    void stop();

  private:
    struct Connection;

    ControlServer(Loop& loop, std::string path, UniqueFd socket, ControlApi& api);
    Task<> serve_connection(std::list<Connection>::iterator connection);
    Task<> watch(Connection& connection);
    Task<bool> serve_request(Connection& connection);
    Task<Result<HttpRequest>> receive_request(Connection& connection, HttpRefusal& refusal);
    Task<Result<>> receive_more(Connection& connection);
    Task<Result<>> send(Connection& connection, std::string text);
    void make_room();

    Loop& loop_;
    std::string path_;
    UniqueFd socket_;
    ControlApi& api_;
    std::list<Connection> connections_;
    Gate gate_;
    bool stopping_ = false;
};

}  // namespace tarn
