// Client: asks the daemon over its control socket, one connection per question, and waits for the answer.
#pragma once

#include <chrono>
#include <expected>
#include <nlohmann/json.hpp>
#include <string>

#include "daemon/cli/cli.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

using Json = nlohmann::ordered_json;

// Why a verb failed, as the user is told: "cause; try: hint".
struct Failure {
    Exit exit = Exit::failed;
    std::string cause;
    std::string hint;  // may be empty
};

template <class T = void>
using Outcome = std::expected<T, Failure>;

class Client {
  public:
    Client(std::string socket, std::chrono::seconds timeout) : socket_(std::move(socket)), timeout_(timeout) {}

    // path is percent-encoded where it needs to be. body: null for none.
    Outcome<Json> ask(const std::string& method, const std::string& path, const Json& body = nullptr) const;

  private:
    Outcome<UniqueFd> connect() const;
    Outcome<std::string> exchange(const std::string& request) const;

    std::string socket_;
    std::chrono::seconds timeout_;
};

}  // namespace tarn
