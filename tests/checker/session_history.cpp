#include "tests/checker/session_history.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tarn::checker {

namespace {

// What a read saw was written by then, at the latest: 0 if it was there from the beginning.
Nanoseconds last_written(Value initial, const std::vector<Operation>& operations, const Operation& read) {
    std::optional<Nanoseconds> latest;
    if (read.value == initial) latest = 0;
    for (const Operation& operation : operations)
        if (operation.is_write && operation.value == read.value && operation.invoked < read.ended)
            latest = std::max(latest.value_or(0), operation.ended);
    return latest.value_or(never);  // nobody's: that is another check's
}

// Calls visit(write, read) for each answered write that a later read shows to be gone.
template <class Visitor>
void for_each_gone(Value initial, const std::vector<Operation>& operations, Visitor&& visit) {
    for (const Operation& read : operations) {
        if (read.is_write) continue;
        const Nanoseconds written = last_written(initial, operations, read);
        for (const Operation& write : operations)
            if (write.is_write && write.ended < read.invoked && written < write.invoked) visit(write, read);
    }
}

}  // namespace

std::optional<std::string> explain_silence(Value initial, const std::vector<Operation>& operations,
                                           const std::vector<Flush>& flushes,
                                           const std::map<SessionNumber, Nanoseconds>& opened) {
    std::optional<std::string> wrong;
    for_each_gone(initial, operations, [&](const Operation& write, const Operation& read) {
        if (wrong) return;
        const auto reader = opened.find(read.session);
        if (reader != opened.end() && reader->second < write.invoked)
            wrong = fmt::format(
                "session {} (client {}), open since {}, read {:x} from {} to {}, without an error, though "
                "{:x} was written from {} to {}",
                read.session, read.client, reader->second, read.value, read.invoked, read.ended, write.value,
                write.invoked, write.ended);
        for (const Flush& flush : flushes)
            if (!wrong && write.session != 0 && flush.session == write.session && flush.invoked > write.ended)
                wrong = fmt::format(
                    "session {} (client {}) wrote {:x} from {} to {}, and flushed from {} to {} without an "
                    "error, but client {} read {:x} from {} to {}",
                    write.session, write.client, write.value, write.invoked, write.ended, flush.invoked, flush.ended,
                    read.client, read.value, read.invoked, read.ended);
    });
    return wrong;
}

std::set<SessionNumber> losers(Value initial, const std::vector<Operation>& operations) {
    std::set<SessionNumber> sessions;
    for_each_gone(initial, operations, [&](const Operation& write, const Operation&) {
        if (write.session != 0) sessions.insert(write.session);
    });
    return sessions;
}

}  // namespace tarn::checker
