// tarn_hosts_sim_mutants: does the simulator of whole hosts notice? Breaks one rule at a time of what joins the
// protocol to sockets, frames and the store, and tries seeds until a check fails. The seeds are the same each time:
// whether a mutant is caught is no matter of luck.
#include "tests/sim/hosts/run.hpp"
#include "tests/sim/support/mutant_runner.hpp"

namespace tarn::hosts_sim {
namespace {

constexpr unsigned seed_seconds_max = 10;  // of CPU; one takes a tenth of one

void try_seeds(uint64_t seeds) {
    Counts counts;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
        sim::begin_check(std::to_string(seed), seed_seconds_max);
        Run run(seed, counts);
        if (const std::string failure = run.run(); !failure.empty()) sim::notice(failure);
    }
}

}  // namespace
}  // namespace tarn::hosts_sim

int main(int argc, char** argv) {
    // What the mutant that shows most rarely needs, and some.
    return tarn::sim::MutantRunner{
        .check = tarn::hosts_sim::try_seeds,
        .limit = {.name = "--seeds", .present = 120, .without_mutant = 20},
    }
        .run(argc, argv);
}
