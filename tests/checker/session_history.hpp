// Was a loss kept from anybody (D4)? What single sessions saw of one register, beside what all of them did to it.
//
// A register may go back once when a host loses its memory, and sessions that begin later see it as it is then. Those
// that were there before must be told:
//   - a session reads nothing that is older than a write which began after the session and was answered before the
//   read,
//   - a flush of a session succeeds only if none of its own answered writes is gone, and none goes afterwards.
// A write is gone when anybody reads what was there before it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/checker/register_history.hpp"

namespace tarn::checker {

using SessionNumber = unsigned;  // 0: not told

// Nothing if nobody was deceived; else who, and about what. opened: when each session began.
std::optional<std::string> explain_silence(Value initial, const std::vector<Operation>& operations,
                                           const std::vector<Flush>& flushes,
                                           const std::map<SessionNumber, Nanoseconds>& opened);

// The sessions that have lost a write of their own: no flush of theirs may succeed any more.
std::set<SessionNumber> losers(Value initial, const std::vector<Operation>& operations);

}  // namespace tarn::checker
