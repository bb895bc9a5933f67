// Client: asks the daemon over its control socket, one connection per question, and waits for the answer. When a daemon
// is just starting, it waits some seconds for it to listen.
#pragma once

#include <chrono>
#include <string>

#include "daemon/cli/failure.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class Client {
  public:
    Client(std::string socket, std::chrono::seconds timeout) : socket_(std::move(socket)), timeout_(timeout) {}

    static constexpr std::chrono::seconds start_max{10};

    // path is percent-encoded where it needs to be. body: null for none; what is not UTF-8 is a mistake of who asks.
    Outcome<Json> ask(const std::string& method, const std::string& path, const Json& body = nullptr) const;

  private:
    Outcome<UniqueFd> connect() const;
    Outcome<UniqueFd> connect_patiently() const;
    // repeatable: it changes nothing, and may be asked again when the daemon dies under it.
    Outcome<std::string> exchange(const std::string& request, bool repeatable) const;
    Outcome<std::string> exchange_over(int fd, const std::string& request) const;

    std::string socket_;
    std::chrono::seconds timeout_;
};

}  // namespace tarn
