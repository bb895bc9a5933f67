// tarn_threads_sim_mutants: does the model notice? Breaks one rule of what threads share at a time and runs the
// scenarios until one fails. Without a mutant all of them must pass.
//
// Each mutant runs in a process of its own, which ends at the first failure: what is left of a broken table may crash.
#include <fmt/format.h>
#include <sys/resource.h>
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

#include "tests/sim/support/mutant.hpp"
#include "tests/sim/threads/scenarios.hpp"

namespace tarn::threads {
namespace {

constexpr unsigned seconds_max = 60;  // of all scenarios together

int reports = -1;  // of the mutant's process to its parent
const char* present_scenario = "";

[[noreturn]] void report(const std::string& what) {
    const std::string line = fmt::format("{}: {}", present_scenario, what);
    [[maybe_unused]] const ssize_t written = ::write(reports, line.data(), line.size());
    std::_Exit(0);
}

void report_signal(int signal) {
    report(signal == SIGALRM ? "it does not end" : "it crashed");
}

void report_failure(const Failure& failure) {
    report(failure.what);
}

// Those that fail soon first: with no preemption, then with one, and so on.
[[noreturn]] void run_scenarios(unsigned number) {
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM}) std::signal(signal, report_signal);
    ::alarm(seconds_max);
    sim::mutant = number;
    bool is_left = true;
    for (unsigned bound = 0; is_left; ++bound) {
        is_left = false;
        for (const Scenario& scenario : all_scenarios()) {
            if (bound > scenario.preemptions) continue;
            is_left = true;
            present_scenario = scenario.name;
            explore(scenario, bound, report_failure);
        }
    }
    std::_Exit(0);
}

struct Running {
    unsigned number;
    pid_t process;
    int output;
};

Running start(unsigned number) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) std::abort();
    const pid_t process = ::fork();
    if (process < 0) std::abort();
    if (process == 0) {
        ::close(ends[0]);
        reports = ends[1];
        run_scenarios(number);
    }
    ::close(ends[1]);
    return {.number = number, .process = process, .output = ends[0]};
}

Running wait_for_one(std::vector<Running>& running) {
    const pid_t process = ::wait(nullptr);
    const auto found = std::ranges::find(running, process, &Running::process);
    if (found == running.end()) std::abort();
    const Running ended = *found;
    running.erase(found);
    return ended;
}

// Empty: nothing was noticed.
std::string said_by(const Running& ended) {
    std::string said;
    std::array<char, 512> buffer;
    for (ssize_t size = 0; (size = ::read(ended.output, buffer.data(), buffer.size())) > 0;)
        said.append(buffer.data(), static_cast<size_t>(size));
    ::close(ended.output);
    return said;
}

int main(int argc, char** argv) {
    unsigned jobs = 1;
    std::string only;
    for (int index = 1; index + 1 < argc; index += 2) {
        if (std::strcmp(argv[index], "--jobs") == 0) jobs = static_cast<unsigned>(std::atoi(argv[index + 1]));
        if (std::strcmp(argv[index], "--only") == 0) only = argv[index + 1];
    }
    std::vector<unsigned> chosen{0};  // none: then nothing may be noticed
    for (unsigned number = 1; number <= sim::mutant_names.size(); ++number)
        if (std::strstr(sim::mutant_names[number - 1], only.c_str())) chosen.push_back(number);
    unsigned passed = 0;
    std::vector<Running> running;
    for (size_t next = 0; next < chosen.size() || !running.empty();) {
        for (; next < chosen.size() && running.size() < std::max(jobs, 1u); ++next)
            running.push_back(start(chosen[next]));
        const Running ended = wait_for_one(running);
        const std::string said = said_by(ended);
        const char* const name = ended.number == 0 ? "no mutant" : sim::mutant_names[ended.number - 1];
        const bool is_right = said.empty() == (ended.number == 0);
        passed += is_right ? 1 : 0;
        fmt::print("{}  {}{}{}\n", is_right ? "ok  " : "FAIL", name, said.empty() ? "" : ": ", said);
        std::fflush(stdout);
    }
    fmt::print("{} passed, {} failed\n", passed, chosen.size() - passed);
    return passed == chosen.size() ? 0 : 1;
}

}  // namespace
}  // namespace tarn::threads

int main(int argc, char** argv) {
    return tarn::threads::main(argc, argv);
}
