// MutantRunner: does a check notice? Runs it once for each mutant, and once without: then it may notice nothing.
//
// Each time in a process of its own, which ends with the first thing noticed: what is broken may crash, or wait for
// ever. Both count as noticed. What it leaves in TMPDIR, a directory of its own, is removed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tarn::sim {

// Every so manyth mutant; all of them, unless an argument says otherwise.
class MutantShare {
  public:
    // text: K/N, K from 0 on.
    explicit MutantShare(const char* text = "0/1");
    bool has(unsigned number) const { return number % of_ == which_; }

  private:
    unsigned which_ = 0;
    unsigned of_ = 1;
};

struct MutantRunner {
    // How often a check is repeated with other seeds, at most: what --NAME says.
    struct Limit {
        const char* name;
        uint64_t present;
        uint64_t without_mutant;
    };

    // In the mutant's process: returns when it has noticed nothing.
    std::function<void(uint64_t limit)> check;
    Limit limit{.name = "", .present = 0, .without_mutant = 0};

    // Arguments: --jobs N, --only PART-OF-A-NAME, --share K/N (a share of all mutants), and the limit's. Returns the
    // program's exit code.
    int run(int argc, char** argv);
};

// In the mutant's process: what runs from now on, as it is told with what is noticed. seconds_max: of CPU time; what
// waits for ever ends after twice that time on a clock.
void begin_check(std::string name, unsigned seconds_max);
// Ends the process. Only the first line of `what` is told.
[[noreturn]] void notice(const std::string& what);

}  // namespace tarn::sim
