// Doctor: what this machine lacks for tarn, or could do better, and the command that mends it.
//
// Reads what the kernel shows, asks no daemon, and changes nothing. For tarn doctor, and for tarnd at the first start
// of a store.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tarn {

struct Finding {
    enum class Verdict : uint8_t { good, better, missing };  // better: it works, and could be better
    std::string about;
    Verdict verdict = Verdict::good;
    std::string seen;
    // Unless it is good:
    std::string mend;    // a command, or what else to do
    std::string effect;  // what that brings

    bool operator==(const Finding&) const = default;
};
// "good", "better", "missing".
const char* name_of(Finding::Verdict verdict);

// What is not to be read from files.
struct Machine {
    std::string root;  // the directory in which proc, sys, dev, lib, etc and usr are; tests have one of their own
    std::string kernel;
    uid_t user = 0;
    // Of this process; a service has limits of its own.
    uint64_t open_files_max = 0;  // by the hard limit
    uint64_t nice_max = 0;        // by the hard limit, as RLIMIT_NICE counts
    bool has_clock_set = true;    // the kernel holds that its clock is right
};
// asks_clock: with a system call that tarnd's unit forbids; otherwise nothing is said of the clock.
Machine this_machine(bool asks_clock);

// In the order in which they are shown.
std::vector<Finding> examine(const Machine& machine);

}  // namespace tarn
