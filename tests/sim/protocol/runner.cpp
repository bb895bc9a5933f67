#include "tests/sim/protocol/runner.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>

#include "tests/sim/protocol/sim_cluster.hpp"
#include "tests/sim/support/failure.hpp"

namespace tarn::sim {

void (*choose_mutant)(unsigned mutant) = nullptr;

Scenario Case::scenario() const {
    Scenario scenario = Scenario::draw(Random(seed).split(0), with_faults);
    for (const auto& [name, value] : set) scenario.set(name, value);
    return scenario;
}

std::string Case::options() const {
    std::string text = "--seed " + std::to_string(seed);
    if (!with_faults) text += " --faults none";
    for (size_t index = 0; index < set.size(); ++index)
        text += (index == 0 ? " --set " : ",") + set[index].first + "=" + std::to_string(set[index].second);
    return text;
}

void Totals::add(const Totals& other) {
    runs += other.runs;
    events += other.events;
    operations += other.operations;
    operations_min = std::min(operations_min, other.operations_min);
    cpu_seconds += other.cpu_seconds;
    coverage.add(other.coverage);
    failed.insert(failed.end(), other.failed.begin(), other.failed.end());
}

namespace {

// A child's report to its parent, in shared memory, so that it survives when the child is killed.
struct Progress {
    size_t next;  // the case under way
    uint64_t runs;
    uint64_t events;
    uint64_t operations;
    uint64_t operations_min;
    Coverage coverage;
    char reason[512];
};

void run_case(const Case& run, bool twice, Progress& progress) {
    const Scenario scenario = run.scenario();
    SimCluster cluster(run.seed, scenario);
    cluster.run();
    if (twice) {
        SimCluster again(run.seed, scenario);
        again.run();
        require(again.trace_hash() == cluster.trace_hash(), "two runs of one seed differ");
    }
    ++progress.runs;
    progress.events += cluster.event_count();
    progress.operations += cluster.operation_count();
    progress.operations_min = std::min(progress.operations_min, cluster.operation_count());
    progress.coverage.add(cluster.coverage());
}

[[noreturn]] void run_child(const Batch& batch, size_t end, size_t stride, Progress& progress) {
    if (choose_mutant) choose_mutant(batch.mutant);
    // A mutant may loop within one step.
    const rlimit limit{batch.seconds_max, batch.seconds_max + 1};
    ::setrlimit(RLIMIT_CPU, &limit);
    for (; progress.next < end; progress.next += stride) {
        try {
            const bool twice = batch.twice_every != 0 && progress.next % batch.twice_every == 0;
            run_case(batch.cases[progress.next], twice, progress);
        } catch (const Failure& failure) {
            std::snprintf(progress.reason, sizeof progress.reason, "%s", failure.what());
            std::_Exit(1);
        }
    }
    std::_Exit(0);
}

struct Child {
    pid_t pid = 0;
    Progress* progress = nullptr;
};

void start(Child& child, const Batch& batch) {
    child.progress->reason[0] = '\0';
    std::fflush(stdout);
    child.pid = ::fork();
    if (child.pid == 0) {
        // Silences the mutant's assertions: the parent reports more briefly.
        if (batch.mutant != 0 && std::freopen("/dev/null", "w", stderr) == nullptr) std::_Exit(2);
        run_child(batch, batch.cases.size(), batch.jobs, *child.progress);
    }
}

std::string reason_of(int status, const Progress& progress) {
    if (WIFEXITED(status)) return progress.reason;
    if (WTERMSIG(status) == SIGXCPU) return "C4: it ran without end";
    if (WTERMSIG(status) == SIGABRT) return "an assertion failed";
    return std::string("ended by signal ") + std::to_string(WTERMSIG(status));
}

}  // namespace

Totals run_batch(const Batch& batch) {
    Totals totals;
    rusage before{};
    ::getrusage(RUSAGE_CHILDREN, &before);
    void* const shared =
        ::mmap(nullptr, sizeof(Progress) * batch.jobs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(shared != MAP_FAILED, "no memory");
    std::vector<Child> children(batch.jobs);
    for (unsigned job = 0; job < batch.jobs; ++job) {
        children[job].progress = new (static_cast<Progress*>(shared) + job) Progress{};
        children[job].progress->next = job;
        children[job].progress->operations_min = ~uint64_t{0};
        start(children[job], batch);
    }
    for (unsigned running = batch.jobs; running > 0;) {
        int status = 0;
        const pid_t pid = ::wait(&status);
        if (pid < 0) break;
        const auto child = std::ranges::find(children, pid, &Child::pid);
        if (child == children.end()) continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            --running;
            continue;
        }
        Progress& progress = *child->progress;
        if (totals.failed.size() < batch.failed_max)
            totals.failed.push_back({batch.cases[progress.next], reason_of(status, progress)});
        progress.next += batch.jobs;
        if (totals.failed.size() >= batch.failed_max) {
            --running;
            child->pid = 0;
            for (Child& other : children)
                if (other.pid != 0) ::kill(other.pid, SIGKILL);
        } else {
            start(*child, batch);
        }
    }
    for (const Child& child : children) {
        const Progress& progress = *child.progress;
        totals.runs += progress.runs;
        totals.events += progress.events;
        totals.operations += progress.operations;
        totals.operations_min = std::min(totals.operations_min, progress.operations_min);
        totals.coverage.add(progress.coverage);
    }
    ::munmap(shared, sizeof(Progress) * batch.jobs);
    rusage after{};
    ::getrusage(RUSAGE_CHILDREN, &after);
    const auto seconds = [](const rusage& usage) {
        return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    };
    totals.cpu_seconds = seconds(after) - seconds(before);
    return totals;
}

}  // namespace tarn::sim
