// tarn_store_sim_mutants: does the simulated disk notice? Breaks one rule of the store at a time and tries crash points
// until a check fails. The seeds are the same each time, so that luck decides nothing.
#include "tests/sim/store/crash_run.hpp"
#include "tests/sim/support/mutant_runner.hpp"

namespace tarn::store_sim {
namespace {

constexpr unsigned seed_seconds_max = 8;  // of CPU; one takes a second at most

void try_crash_points(uint64_t points) {
    const std::unique_ptr<Loop> loop = std::move(*Loop::create());
    const std::unique_ptr<Loop> other = std::move(*Loop::create());
    Counts counts;
    for (uint64_t seed = 1; counts.crash_points < points; ++seed) {
        sim::begin_check(std::to_string(seed), seed_seconds_max);
        CrashRun world(seed, *loop, *other, counts);
        if (const std::string failure = world.run(); !failure.empty()) sim::notice(failure);
    }
}

}  // namespace
}  // namespace tarn::store_sim

int main(int argc, char** argv) {
    // The mutant that shows most rarely needs nearly as many.
    return tarn::sim::MutantRunner{
        .check = tarn::store_sim::try_crash_points,
        .limit = {.name = "--points", .present = 50'000, .without_mutant = 1000},
    }
        .run(argc, argv);
}
