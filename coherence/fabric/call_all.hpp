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

// The answers in the order of `hosts`, once all are there or the timeout is over. Errors of an answer: as call()'s;
// unavailable also for a host that did not answer in time, or before the waiting task was interrupted. From a loop that
// runs; the fabric outlives it.
Task<std::vector<HostAnswer>> call_all(Fabric& fabric, std::vector<HostId> hosts, CallKind kind, std::string request,
                                       std::chrono::milliseconds timeout);

}  // namespace tarn
