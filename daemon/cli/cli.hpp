// tarn: the command line. Everything it says and does, apart from main(), so that tests can run it.
#pragma once

#include <ostream>
#include <span>

namespace tarn {

// The exit codes, which scripts rely on.
enum class Exit : int {
    ok = 0,
    failed = 1,
    usage = 2,
    not_found = 3,
    busy = 4,  // also: it exists already
    unreachable = 5,
    timed_out = 6,
    permission = 7,
};

// Which of the two streams is a terminal: text on it is made safe to show, and long work shows its progress.
struct Terminals {
    bool out = false;
    bool err = false;
};

Exit run_cli(std::span<const char* const> words, std::ostream& out, std::ostream& err, Terminals terminals = {});

}  // namespace tarn
