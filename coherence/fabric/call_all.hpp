// call_all: one question to several hosts at once.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "coherence/fabric/fabric.hpp"

namespace tarn {

struct HostAnswer {
    HostId host;
    Result<std::string> said;
};

// Returns the answers in the order of `hosts`, once all are there or the timeout has passed. Errors of an answer: as
// call()'s; unavailable also for a host that did not answer in time, or before the waiting task was interrupted. Call
// it on a running loop, which the fabric outlives.
Task<std::vector<HostAnswer>> call_all(Fabric& fabric, std::vector<HostId> hosts, CallKind kind, std::string request,
                                       std::chrono::milliseconds timeout);

}  // namespace tarn
