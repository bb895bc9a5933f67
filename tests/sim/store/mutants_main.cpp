// tarn_store_sim_mutants: does the simulated disk notice? Breaks one rule of the store at a time and counts the crash
// points until a check fails. The seeds are the same each time, so that luck decides nothing.
//
// Each mutant runs in a process of its own: a broken store may crash, or wait for ever.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/sim/store/crash_run.hpp"
#include "tests/sim/support/mutant.hpp"

namespace tarn::store_sim {
namespace {

constexpr uint64_t points_max = 50'000;  // enough for the mutant that shows most rarely
constexpr int seed_seconds_max = 8;      // of CPU; one takes a second at most

uint64_t current_seed = 0;
int reports = -1;  // of the mutant's process to its parent

[[noreturn]] void report(const char* what) {
    const std::string line = fmt::format("{:6}  {}", current_seed, what);
    [[maybe_unused]] const ssize_t written = ::write(reports, line.data(), line.size());
    std::_Exit(0);
}

void report_signal(int signal) {
    report(signal == SIGPROF ? "it does not end" : "it crashed");
}

[[noreturn]] void run_mutant(unsigned number, uint64_t points) {
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGPROF}) std::signal(signal, report_signal);
    if (!std::freopen("/dev/null", "w", stderr)) std::_Exit(1);
    sim::mutant = number;
    const std::unique_ptr<Loop> loop = std::move(*Loop::create());
    const std::unique_ptr<Loop> other = std::move(*Loop::create());
    Counts counts;
    for (current_seed = 1; counts.crash_points < points; ++current_seed) {
        const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = seed_seconds_max, .tv_usec = 0}};
        ::setitimer(ITIMER_PROF, &limit, nullptr);
        CrashRun world(current_seed, *loop, *other, counts);
        if (const std::string failure = world.run(); !failure.empty())
            report(failure.substr(0, failure.find(';')).c_str());
    }
    std::_Exit(0);
}

struct Running {
    unsigned number;
    pid_t process;
    int output;
};

// The report of the mutant's process; empty when nothing was noticed.
std::string said_by(const Running& ended) {
    std::string said;
    std::array<char, 512> buffer;
    for (ssize_t size = 0; (size = ::read(ended.output, buffer.data(), buffer.size())) > 0;)
        said.append(buffer.data(), static_cast<size_t>(size));
    ::close(ended.output);
    return said;
}

// Waits for the first to end: some take a hundred times as long as others.
Running wait_for_one(std::vector<Running>& running) {
    const pid_t process = ::wait(nullptr);
    const auto found = std::ranges::find(running, process, &Running::process);
    if (found == running.end()) std::abort();
    const Running ended = *found;
    running.erase(found);
    return ended;
}

Running start(unsigned number, uint64_t points) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) std::abort();
    const pid_t process = ::fork();
    if (process < 0) std::abort();
    if (process == 0) {
        ::close(ends[0]);
        reports = ends[1];
        run_mutant(number, points);
    }
    ::close(ends[1]);
    return {.number = number, .process = process, .output = ends[0]};
}

int run(int argc, char** argv) {
    unsigned jobs = 1;
    uint64_t points = points_max;
    std::string only;
    for (int index = 1; index + 1 < argc; index += 2) {
        if (std::strcmp(argv[index], "--jobs") == 0) jobs = static_cast<unsigned>(std::atoi(argv[index + 1]));
        if (std::strcmp(argv[index], "--points") == 0) points = std::strtoull(argv[index + 1], nullptr, 10);
        if (std::strcmp(argv[index], "--only") == 0) only = argv[index + 1];
    }
    std::vector<unsigned> chosen;
    for (unsigned number = 1; number <= sim::mutant_names.size(); ++number)
        if (std::strstr(sim::mutant_names[number - 1], only.c_str())) chosen.push_back(number);
    unsigned caught = 0;
    std::vector<Running> running;
    for (size_t next = 0; next < chosen.size() || !running.empty();) {
        for (; next < chosen.size() && running.size() < std::max(jobs, 1u); ++next)
            running.push_back(start(chosen[next], points));
        const Running ended = wait_for_one(running);
        const std::string said = said_by(ended);
        caught += said.empty() ? 0 : 1;
        const char* const name = sim::mutant_names[ended.number - 1];
        const size_t seed_ends = std::min<size_t>(said.size(), 8);
        if (said.empty())
            std::printf("  MISS  %s\n", name);
        else
            std::printf("%s%s: %s\n", said.substr(0, seed_ends).c_str(), name, said.substr(seed_ends).c_str());
        std::fflush(stdout);
    }
    std::printf("%u of %zu caught\n", caught, chosen.size());
    return caught == chosen.size() && caught > 0 ? 0 : 1;
}

}  // namespace
}  // namespace tarn::store_sim

int main(int argc, char** argv) {
    return tarn::store_sim::run(argc, argv);
}
