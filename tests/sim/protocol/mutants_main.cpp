// tarn_sim_mutants: does the simulator notice? Breaks one rule of the protocol at a time and counts the schedules until
// a check fails. The seeds are the same each time, so that luck does not decide whether a mutant is caught. A run that
// failed once may catch it instead. With --only NAME a smaller run that shows the mutant is printed as well.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/protocol/known_runs.hpp"
#include "tests/sim/protocol/runner.hpp"
#include "tests/sim/protocol/shrink.hpp"
#include "tests/sim/support/mutant.hpp"
#include "tests/sim/support/mutant_runner.hpp"

namespace tarn::sim {
namespace {

constexpr uint64_t seeds_max = 30'000;  // as many as CI runs of the unchanged protocol
constexpr unsigned seconds_max = 60;    // of CPU, for one mutant: mere slowness does not catch it

// The cases run in parallel on both CPUs.
Failed first_failure(unsigned number, unsigned jobs, std::vector<Case> cases) {
    Batch batch;
    batch.cases = std::move(cases);
    batch.failed_max = 1;
    batch.jobs = jobs;
    batch.mutant = number;
    batch.seconds_max = seconds_max;
    const Totals totals = run_batch(batch);
    return totals.failed.empty() ? Failed{} : totals.failed.front();
}

Failed first_failure_of_seeds(unsigned number, unsigned jobs, uint64_t count) {
    // In growing portions: most mutants are caught at once, and a list of all seeds would cost more than the runs.
    uint64_t from = 1;
    for (uint64_t portion = 100; from <= count; portion *= 4) {
        std::vector<Case> cases;
        for (; cases.size() < portion && from <= count; ++from) cases.push_back({.seed = from});
        if (Failed failed = first_failure(number, jobs, std::move(cases)); failed.run.seed != 0) return failed;
    }
    return {};
}

int run(int argc, char** argv) {
    unsigned jobs = 1;
    uint64_t count = seeds_max;
    std::string only;
    MutantShare share;
    std::vector<Case> known_runs;
    for (int index = 1; index + 1 < argc; index += 2) {
        if (std::strcmp(argv[index], "--jobs") == 0) jobs = static_cast<unsigned>(std::atoi(argv[index + 1]));
        if (std::strcmp(argv[index], "--seeds") == 0) count = std::strtoull(argv[index + 1], nullptr, 10);
        if (std::strcmp(argv[index], "--only") == 0) only = argv[index + 1];
        if (std::strcmp(argv[index], "--share") == 0) share = MutantShare(argv[index + 1]);
        if (std::strcmp(argv[index], "--corpus") == 0 && !read_known_runs(argv[index + 1], known_runs)) {
            std::printf("%s: not a list of runs\n", argv[index + 1]);
            return 2;
        }
    }
    choose_mutant = [](unsigned number) { mutant = number; };
    unsigned tried = 0;
    unsigned caught = 0;
    for (unsigned number = 1; number <= mutants.size(); ++number) {
        const std::string name = mutants[number - 1].name;
        if (!share.has(number) || name.find(only) == std::string::npos) continue;
        ++tried;
        Failed failed = first_failure_of_seeds(number, std::max(jobs, 1u), count);
        const bool is_seen_by_seeds = failed.run.seed != 0;
        if (!is_seen_by_seeds) failed = first_failure(number, 1, known_runs);
        caught += failed.run.seed != 0;
        const std::string reason = failed.reason.substr(0, failed.reason.find(';'));
        if (failed.run.seed != 0 && !is_seen_by_seeds)
            std::printf("  known  %s: %s\n", name.c_str(), reason.c_str());
        else if (failed.run.seed != 0)
            std::printf("%7llu  %s: %s\n", static_cast<unsigned long long>(failed.run.seed), name.c_str(),
                        reason.c_str());
        else
            std::printf("   MISS  %s\n", name.c_str());
        if (failed.run.seed != 0 && !only.empty())
            std::printf("         made smaller: %s\n", shrink(failed, number).run.options().c_str());
        std::fflush(stdout);
    }
    std::printf("%u of %u caught\n", caught, tried);
    return caught == tried && tried > 0 ? 0 : 1;
}

}  // namespace
}  // namespace tarn::sim

int main(int argc, char** argv) {
    return tarn::sim::run(argc, argv);
}
