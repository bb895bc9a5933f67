// tarn_threads_sim_mutants: does the model notice? Breaks one rule of what threads share at a time and runs the
// scenarios until one fails.
#include "tests/sim/support/mutant_runner.hpp"
#include "tests/sim/threads/scenarios.hpp"

namespace tarn::threads {
namespace {

constexpr unsigned seconds_max = 60;  // of CPU, for one scenario within one bound

// Those that fail soon first: with no preemption, then with one, and so on.
void run_scenarios(uint64_t) {
    bool is_left = true;
    for (unsigned bound = 0; is_left; ++bound) {
        is_left = false;
        for (const Scenario& scenario : all_scenarios()) {
            if (bound > scenario.preemptions) continue;
            is_left = true;
            sim::begin_check(scenario.name, seconds_max);
            explore(scenario, bound, [](const Failure& failure) { sim::notice(failure.what); });
        }
    }
}

}  // namespace
}  // namespace tarn::threads

int main(int argc, char** argv) {
    return tarn::sim::MutantRunner{.check = tarn::threads::run_scenarios}.run(argc, argv);
}
