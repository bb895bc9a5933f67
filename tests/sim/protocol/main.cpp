// tarn_sim: runs seeds of the simulated cluster. One seed is one run, bit for bit.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "tests/sim/protocol/known_runs.hpp"
#include "tests/sim/protocol/runner.hpp"
#include "tests/sim/protocol/shrink.hpp"
#include "tests/sim/protocol/sim_cluster.hpp"
#include "tests/sim/support/failure.hpp"

namespace tarn::sim {
namespace {

constexpr const char* usage =
    "usage: tarn_sim [--seeds COUNT] [--from SEED] [--jobs COUNT] [--faults none|all] [--corpus FILE]\n"
    "       tarn_sim --seed SEED [--set NAME=VALUE,...] [--trace]\n";
constexpr uint64_t big_run = 5000;     // runs of at least this size must reach every race
constexpr unsigned twice_every = 100;  // one seed in this many runs twice, and must run equally

struct Options {
    uint64_t from = 0;  // 0: a new one each time
    uint64_t count = 100;
    unsigned jobs = 1;
    bool is_single = false;
    bool traces = false;
    std::string corpus;
    Case run;
};

bool parse(int argc, char** argv, Options& options) {
    for (int index = 1; index < argc; ++index) {
        const std::string name = argv[index];
        if (name == "--trace") {
            options.traces = true;
            continue;
        }
        if (index + 1 == argc) return false;
        const char* value = argv[++index];
        if (name == "--faults") {
            options.run.with_faults = std::strcmp(value, "none") != 0;
        } else if (name == "--corpus") {
            options.corpus = value;
        } else if (name == "--set") {
            if (!parse_set(value, options.run)) return false;
        } else {
            char* end = nullptr;
            const uint64_t number = std::strtoull(value, &end, 10);
            if (*end != '\0') return false;
            if (name == "--seeds") {
                options.count = number;
            } else if (name == "--from") {
                options.from = number;
            } else if (name == "--jobs") {
                options.jobs = static_cast<unsigned>(std::clamp<uint64_t>(number, 1, 64));
            } else if (name == "--seed") {
                options.run.seed = number;
                options.is_single = true;
            } else {
                return false;
            }
        }
    }
    return true;
}

// Runs in this process, for a debugger.
int run_single(const Options& options) {
    SimCluster cluster(options.run.seed, options.run.scenario(), options.traces ? Tracing::all : Tracing::off);
    try {
        cluster.run();
    } catch (const Failure& failure) {
        if (options.traces) cluster.describe();
        std::printf("seed %llu failed: %s\n", static_cast<unsigned long long>(options.run.seed), failure.what());
        return 1;
    }
    std::printf("seed %llu passed: %llu operations, %llu events\n", static_cast<unsigned long long>(options.run.seed),
                static_cast<unsigned long long>(cluster.operation_count()),
                static_cast<unsigned long long>(cluster.event_count()));
    return 0;
}

// At most a page: the failure, the smallest failing run found, and how that one ended.
void report(const Failed& failed) {
    const Failed smallest = shrink(failed, 0);
    std::printf("seed %llu failed: %s\n  replay: ./dev sim %s --trace\n",
                static_cast<unsigned long long>(failed.run.seed), failed.reason.c_str(), failed.run.options().c_str());
    std::printf("made smaller: %s\n  replay: ./dev sim %s --trace\n", smallest.reason.c_str(),
                smallest.run.options().c_str());
    SimCluster cluster(smallest.run.seed, smallest.run.scenario(), Tracing::last);
    if (smallest.reason.starts_with("an assertion") || smallest.reason.starts_with("ended")) return;
    try {
        cluster.run();
    } catch (const Failure&) {
        cluster.describe();
    }
}

int run(Options options) {
    if (options.from == 0) options.from = std::random_device{}() % 1'000'000'000 * 1000 + 1;
    Batch batch;
    batch.jobs = options.jobs;
    batch.twice_every = twice_every;
    if (!options.corpus.empty() && !read_known_runs(options.corpus, batch.cases)) {
        std::printf("%s: not a list of runs\n", options.corpus.c_str());
        return 2;
    }
    const size_t known_count = batch.cases.size();
    for (uint64_t index = 0; index < options.count; ++index) {
        Case& run = batch.cases.emplace_back(options.run);
        run.seed = options.from + index;
    }
    std::printf("%zu known runs, and %llu seeds from %llu on\n", known_count,
                static_cast<unsigned long long>(options.count), static_cast<unsigned long long>(options.from));
    const Totals totals = run_batch(batch);
    const bool reached_all = totals.coverage.print(options.run.with_faults);
    std::printf("%.0f schedules per CPU minute, %.1f M events/s, %llu operations on average, %llu at least\n",
                static_cast<double>(totals.runs) / totals.cpu_seconds * 60,
                static_cast<double>(totals.events) / totals.cpu_seconds / 1e6,
                static_cast<unsigned long long>(totals.operations / std::max<uint64_t>(totals.runs, 1)),
                static_cast<unsigned long long>(totals.operations_min));
    if (!totals.failed.empty()) report(totals.failed.front());
    for (size_t index = 1; index < totals.failed.size(); ++index)
        std::printf("also failed: ./dev sim %s: %s\n", totals.failed[index].run.options().c_str(),
                    totals.failed[index].reason.c_str());
    std::printf("%llu passed, %zu failed\n", static_cast<unsigned long long>(totals.runs), totals.failed.size());
    if (options.count >= big_run && options.run.set.empty() && !reached_all) {
        std::printf("a race was never reached\n");
        return 1;
    }
    return totals.failed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace tarn::sim

int main(int argc, char** argv) {
    tarn::sim::Options options;
    if (!tarn::sim::parse(argc, argv, options)) {
        std::fputs(tarn::sim::usage, stderr);
        return 2;
    }
    return options.is_single ? tarn::sim::run_single(options) : tarn::sim::run(options);
}
