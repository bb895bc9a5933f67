// tarn_threads_sim: the code that threads share, as it is shipped, through every order of their steps. See model.hpp.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/sim/threads/scenarios.hpp"

namespace tarn::threads {
namespace {

constexpr const char* usage =
    "usage: tarn_threads_sim [--list] [--scenario NAME [--replay RUN | --preemptions N]]\n"
    "  --replay       the run that a failure names, or its beginning, step by step\n"
    "  --preemptions  how often a thread may be interrupted, instead of the scenario's own number\n";

[[noreturn]] void tell(const Failure& failure) {
    fmt::print("{}{} failed: {}\nreplay: ./dev sim --threads --scenario {} --replay {}\n", trace(),
               failure.scenario.name, failure.what, failure.scenario.name, text_of(failure.run));
    std::fflush(stdout);
    std::_Exit(1);
}

int main(int argc, char** argv) {
    std::string only;
    std::string preemptions;
    std::string run_text;
    bool list = false;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        list |= name == "--list";
        std::string* const into = name == "--scenario"      ? &only
                                  : name == "--replay"      ? &run_text
                                  : name == "--preemptions" ? &preemptions
                                                            : nullptr;
        if (into && ++i < argc)
            *into = argv[i];
        else if (name != "--list") {
            fmt::print(stderr, "{}", usage);
            return 2;
        }
    }
    unsigned passed = 0;
    uint64_t runs = 0;
    for (Scenario scenario : all_scenarios()) {
        if (!only.empty() && only != scenario.name) continue;
        ++passed;
        if (list) {
            fmt::print("{:24} {}\n", scenario.name, scenario.claim);
            continue;
        }
        if (!run_text.empty()) {
            Run run;
            if (only.empty() || !parse(run_text, run)) {
                fmt::print(stderr, "{}", usage);
                return 2;
            }
            replay(scenario, run, tell);
            fmt::print("{}it passes\n", trace());
            return 0;
        }
        if (!preemptions.empty()) scenario.preemptions = static_cast<unsigned>(std::atoi(preemptions.c_str()));
        const auto start = std::chrono::steady_clock::now();
        const uint64_t count = explore(scenario, tell);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        fmt::print("{:24} {:8} runs, {:5.2f} s: {}\n", scenario.name, count, took.count(), scenario.claim);
        std::fflush(stdout);
        runs += count;
    }
    if (passed == 0) {
        fmt::print(stderr, "no scenario is called {}; try: --list\n", only);
        return 2;
    }
    if (!list) fmt::print("{} scenarios passed, {} runs\n", passed, runs);
    return 0;
}

}  // namespace
}  // namespace tarn::threads

int main(int argc, char** argv) {
    return tarn::threads::main(argc, argv);
}
