// tarn_hosts_sim_mutants: does the simulator of whole hosts notice? Breaks one rule at a time of what joins the
// protocol to sockets, frames and the store, and counts the seeds until a check fails. The seeds are the same each
// time: whether a mutant is caught is no matter of luck. Without a mutant none may fail.
//
// Each mutant runs in a process of its own: a broken host may crash, or never come to an end.
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

#include "tests/sim/hosts/run.hpp"
#include "tests/sim/support/mutant.hpp"

namespace tarn::hosts_sim {
namespace {

constexpr uint64_t seeds_default = 120;  // what the mutant that shows most rarely needs, and some
constexpr uint64_t sound_seeds = 20;     // that are tried without any mutant
constexpr int seed_seconds_max = 10;     // of CPU; one takes a tenth of one

uint64_t current_seed = 0;
int reports = -1;  // of the mutant's process to its parent

[[noreturn]] void report(const std::string& what) {
    const std::string line = fmt::format("{:6}  {}", current_seed, what.substr(0, what.find('\n')).substr(0, 160));
    [[maybe_unused]] const ssize_t written = ::write(reports, line.data(), line.size());
    std::_Exit(0);
}

void report_signal(int signal) {
    report(signal == SIGPROF ? "it does not end" : signal == SIGABRT ? "an assertion" : "it crashed");
}

[[noreturn]] void run_mutant(unsigned number, uint64_t seeds) {
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGPROF}) std::signal(signal, report_signal);
    if (!std::freopen("/dev/null", "w", stderr)) std::_Exit(1);
    sim::mutant = number;
    Counts counts;
    for (current_seed = 1; current_seed <= (number == 0 ? std::min(seeds, sound_seeds) : seeds); ++current_seed) {
        const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = seed_seconds_max, .tv_usec = 0}};
        ::setitimer(ITIMER_PROF, &limit, nullptr);
        Run run(current_seed, counts);
        if (const std::string failure = run.run(); !failure.empty()) report(failure);
    }
    std::_Exit(0);
}

struct Running {
    unsigned number;
    pid_t process;
    int output;
};

// What its process has said when it ended; empty when nothing was noticed.
std::string said_by(const Running& ended) {
    std::string said;
    std::array<char, 512> buffer;
    for (ssize_t size = 0; (size = ::read(ended.output, buffer.data(), buffer.size())) > 0;)
        said.append(buffer.data(), static_cast<size_t>(size));
    ::close(ended.output);
    return said;
}

Running wait_for_one(std::vector<Running>& running) {
    const pid_t process = ::wait(nullptr);
    const auto found = std::ranges::find(running, process, &Running::process);
    if (found == running.end()) std::abort();
    const Running ended = *found;
    running.erase(found);
    return ended;
}

Running start(unsigned number, uint64_t seeds) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) std::abort();
    const pid_t process = ::fork();
    if (process < 0) std::abort();
    if (process == 0) {
        ::close(ends[0]);
        reports = ends[1];
        run_mutant(number, seeds);
    }
    ::close(ends[1]);
    return {.number = number, .process = process, .output = ends[0]};
}

// Whether it is as it should be.
bool tell(const Running& ended) {
    const std::string said = said_by(ended);
    if (ended.number == 0) {
        if (!said.empty()) std::printf("without any mutant: %s\n", said.c_str());
        return said.empty();
    }
    const char* const name = sim::mutant_names[ended.number - 1];
    const size_t seed_ends = std::min<size_t>(said.size(), 8);
    if (said.empty())
        std::printf("  MISS  %s\n", name);
    else
        std::printf("%s%s: %s\n", said.substr(0, seed_ends).c_str(), name, said.substr(seed_ends).c_str());
    std::fflush(stdout);
    return !said.empty();
}

int run(int argc, char** argv) {
    unsigned jobs = 1;
    uint64_t seeds = seeds_default;
    std::string only;
    for (int index = 1; index + 1 < argc; index += 2) {
        if (std::strcmp(argv[index], "--jobs") == 0) jobs = static_cast<unsigned>(std::atoi(argv[index + 1]));
        if (std::strcmp(argv[index], "--seeds") == 0) seeds = std::strtoull(argv[index + 1], nullptr, 10);
        if (std::strcmp(argv[index], "--only") == 0) only = argv[index + 1];
    }
    std::vector<unsigned> chosen{0};
    for (unsigned number = 1; number <= sim::mutant_names.size(); ++number)
        if (std::strstr(sim::mutant_names[number - 1], only.c_str())) chosen.push_back(number);
    size_t passed = 0;
    std::vector<Running> running;
    for (size_t next = 0; next < chosen.size() || !running.empty();) {
        for (; next < chosen.size() && running.size() < std::max(jobs, 1u); ++next)
            running.push_back(start(chosen[next], seeds));
        if (tell(wait_for_one(running))) ++passed;
    }
    std::printf("%zu passed, %zu failed\n", passed, chosen.size() - passed);
    return passed == chosen.size() && passed > 1 ? 0 : 1;
}

}  // namespace
}  // namespace tarn::hosts_sim

int main(int argc, char** argv) {
    return tarn::hosts_sim::run(argc, argv);
}
