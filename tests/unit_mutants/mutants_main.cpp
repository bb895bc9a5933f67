// tarn_unit_mutants: do the unit tests notice? Breaks one rule of the cache, the fabric or the catalog at a time and
// runs the tests of them until the first that fails. Without a mutant all of them must pass.
//
// Each mutant runs in a process of its own, which ends at the first failure: what is left of a broken cache may crash,
// or wait for ever.
#include <fmt/format.h>
#include <gtest/gtest.h>
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

namespace tarn {
namespace {

constexpr unsigned seconds_max = 60;  // of all tests together; they take a few

int reports = -1;        // of the mutant's process to its parent
std::string under_test;  // the test that runs

[[noreturn]] void report(const std::string& what) {
    const std::string line = under_test + ": " + what;
    [[maybe_unused]] const ssize_t written = ::write(reports, line.data(), line.size());
    std::_Exit(0);
}

void report_signal(int signal) {
    report(signal == SIGALRM ? "it does not end" : signal == SIGABRT ? "an assertion" : "it crashed");
}

// Called with gtest's own lock held: asks it nothing.
class ReportFirst final : public testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo& test) override {
        under_test = fmt::format("{}.{}", test.test_suite_name(), test.name());
    }
    void OnTestPartResult(const testing::TestPartResult& result) override {
        if (!result.failed()) return;
        const char* const slash = std::strrchr(result.file_name() ? result.file_name() : "", '/');
        report(fmt::format("{}:{}", slash ? slash + 1 : "", result.line_number()));
    }
};

[[noreturn]] void run_tests(unsigned number) {
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM}) std::signal(signal, report_signal);
    if (!std::freopen("/dev/null", "w", stderr) || !std::freopen("/dev/null", "w", stdout)) std::_Exit(1);
    ::alarm(seconds_max);
    sim::mutant = number;
    testing::UnitTest::GetInstance()->listeners().Append(new ReportFirst);
    if (RUN_ALL_TESTS() != 0) report("it failed");
    std::_Exit(0);
}

struct Running {
    unsigned number;
    pid_t process;
    int output;
    bool crashed = false;
};

// What its process has said when it ended; empty when nothing was noticed.
std::string said_by(const Running& ended) {
    std::string said = ended.crashed ? "it crashed" : "";
    std::array<char, 512> buffer;
    for (ssize_t size = 0; (size = ::read(ended.output, buffer.data(), buffer.size())) > 0;)
        said.append(buffer.data(), static_cast<size_t>(size));
    ::close(ended.output);
    return said;
}

Running start(unsigned number) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) std::abort();
    const pid_t process = ::fork();
    if (process < 0) std::abort();
    if (process == 0) {
        ::close(ends[0]);
        reports = ends[1];
        run_tests(number);
    }
    ::close(ends[1]);
    return {.number = number, .process = process, .output = ends[0]};
}

Running wait_for_one(std::vector<Running>& running) {
    int status = 0;
    const pid_t process = ::wait(&status);
    const auto found = std::ranges::find(running, process, &Running::process);
    if (found == running.end()) std::abort();
    Running ended = *found;
    ended.crashed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    running.erase(found);
    return ended;
}

int run(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    unsigned jobs = 1;
    std::string only;
    for (int index = 1; index + 1 < argc; index += 2) {
        if (std::strcmp(argv[index], "--jobs") == 0) jobs = static_cast<unsigned>(std::atoi(argv[index + 1]));
        if (std::strcmp(argv[index], "--only") == 0) only = argv[index + 1];
    }
    std::vector<unsigned> chosen{0};  // none: then nothing may be noticed
    for (unsigned number = 1; number <= sim::mutant_names.size(); ++number)
        if (std::strstr(sim::mutant_names[number - 1], only.c_str())) chosen.push_back(number);
    size_t caught = 0;
    bool is_sound = true;
    std::vector<Running> running;
    for (size_t next = 0; next < chosen.size() || !running.empty();) {
        for (; next < chosen.size() && running.size() < std::max(jobs, 1u); ++next)
            running.push_back(start(chosen[next]));
        const Running ended = wait_for_one(running);
        const std::string said = said_by(ended);
        if (ended.number == 0) {
            is_sound = said.empty();
            if (!is_sound) std::printf("without any mutant: %s\n", said.c_str());
            continue;
        }
        caught += said.empty() ? 0 : 1;
        std::printf("%s  %s%s%s\n", said.empty() ? "  MISS" : "caught", sim::mutant_names[ended.number - 1],
                    said.empty() ? "" : "\n          ", said.c_str());
        std::fflush(stdout);
    }
    std::printf("%zu of %zu caught\n", caught, chosen.size() - 1);
    return is_sound && caught > 0 && caught == chosen.size() - 1 ? 0 : 1;
}

}  // namespace
}  // namespace tarn

int main(int argc, char** argv) {
    return tarn::run(argc, argv);
}
