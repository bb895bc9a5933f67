// Failure: why a verb failed, in the words of who asked: "cause; try: hint".
#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "daemon/cli/cli.hpp"
#include "daemon/control/control.hpp"
#include "utils/result.hpp"

namespace tarn {

struct Failure {
    Exit exit = Exit::failed;
    std::string cause;
    std::string hint;  // may be empty
    // Most failures are made of the three above alone; so these need initializers.
    // NOLINTBEGIN(readability-redundant-member-init)
    std::string code = {};    // the daemon's word for it; empty: as the exit code says
    std::string object = {};  // what it was about, if that is not all that the verb was about
    // NOLINTEND(readability-redundant-member-init)
};

template <class T = void>
using Outcome = std::expected<T, Failure>;

inline std::unexpected<Failure> refuse(Exit exit, std::string cause, std::string hint = {}) {
    return std::unexpected(Failure{.exit = exit, .cause = std::move(cause), .hint = std::move(hint)});
}

// The word that the JSON of an error has for an exit code.
std::string_view code_of(Exit exit);
Exit exit_of(Errc code);

// The daemon's answer to a request that failed.
Failure failure_of(const Json& reply, int status);

// Puts the failure into the words of the verb: what was not found, and what to try, depend on the verb.
void explain(Failure& failure, std::string_view verb, const std::string& object);

// {"object", "code", "message", "hint", "exit"}
Json json_of(const Failure& failure, const std::string& object);

}  // namespace tarn
