#include "tests/sim/support/mutant_runner.hpp"

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
#include <filesystem>
#include <system_error>
#include <vector>

#include "tests/sim/support/mutant.hpp"

namespace tarn::sim {

namespace {

constexpr size_t told_max = 160;  // characters

std::string present_check;
int reports = -1;  // of the mutant's process to its parent

void notice_signal(int signal) {
    notice(signal == SIGPROF || signal == SIGALRM ? "it does not end"
           : signal == SIGABRT                    ? "an assertion"
                                                  : "it crashed");
}

struct Running {
    unsigned number;
    pid_t process;
    int output;
    std::string scratch;  // a directory
};

Running start(const MutantRunner& runner, unsigned number) {
    std::array<int, 2> ends{};
    std::string scratch = "/var/tmp/tarn-mutant-XXXXXX";
    if (::pipe(ends.data()) != 0 || !::mkdtemp(scratch.data())) std::abort();
    const pid_t process = ::fork();
    if (process < 0) std::abort();
    if (process != 0) {
        ::close(ends[1]);
        return {.number = number, .process = process, .output = ends[0], .scratch = scratch};
    }
    ::setenv("TMPDIR", scratch.c_str(), 1);
    ::close(ends[0]);
    reports = ends[1];
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGPROF, SIGALRM}) std::signal(signal, notice_signal);
    if (!std::freopen("/dev/null", "w", stderr) || !std::freopen("/dev/null", "w", stdout)) std::_Exit(1);
    mutant = number;
    runner.check(number == 0 ? std::min(runner.limit.present, runner.limit.without_mutant) : runner.limit.present);
    std::_Exit(0);
}

// What was noticed in the first of them to end, whose number this sets; empty: nothing.
std::string wait_for_one(std::vector<Running>& running, unsigned& number) {
    int status = 0;
    const pid_t process = ::wait(&status);
    const auto ended = std::ranges::find(running, process, &Running::process);
    if (ended == running.end()) std::abort();
    std::string said = WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : "it crashed";
    std::array<char, 512> buffer;
    for (ssize_t size = 0; (size = ::read(ended->output, buffer.data(), buffer.size())) > 0;)
        said.append(buffer.data(), static_cast<size_t>(size));
    ::close(ended->output);
    std::error_code ignored;
    std::filesystem::remove_all(ended->scratch, ignored);
    number = ended->number;
    running.erase(ended);
    return said;
}

}  // namespace

void begin_check(std::string name, unsigned seconds_max) {
    present_check = std::move(name);
    const itimerval end{.it_interval = {}, .it_value = {.tv_sec = seconds_max, .tv_usec = 0}};
    ::setitimer(ITIMER_PROF, &end, nullptr);
    ::alarm(2 * seconds_max);
}

void notice(const std::string& what) {
    const std::string line = fmt::format("{}: {}", present_check, what.substr(0, what.find('\n')).substr(0, told_max));
    [[maybe_unused]] const ssize_t written = ::write(reports, line.data(), line.size());
    std::_Exit(0);
}

MutantShare::MutantShare(const char* text) {
    if (std::sscanf(text, "%u/%u", &which_, &of_) != 2 || which_ >= of_) {
        fmt::print(stderr, "--share {}: K/N, with K from 0 to N - 1\n", text);
        std::exit(2);
    }
}

int MutantRunner::run(int argc, char** argv) {
    unsigned jobs = 1;
    std::string only;
    MutantShare share;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (std::strcmp(argv[i], "--jobs") == 0) jobs = std::max(1, std::atoi(argv[i + 1]));
        if (std::strcmp(argv[i], "--only") == 0) only = argv[i + 1];
        if (std::strcmp(argv[i], "--share") == 0) share = MutantShare(argv[i + 1]);
        if (limit.name == std::string_view(argv[i])) limit.present = std::strtoull(argv[i + 1], nullptr, 10);
    }
    std::vector<unsigned> chosen{0};
    for (unsigned number = 1; number <= mutants.size(); ++number)
        if (share.has(number) && std::strstr(mutants[number - 1].name, only.c_str())) chosen.push_back(number);
    size_t passed = 0;
    std::vector<Running> running;
    for (size_t next = 0; next < chosen.size() || !running.empty();) {
        for (; next < chosen.size() && running.size() < jobs; ++next) running.push_back(start(*this, chosen[next]));
        unsigned number = 0;
        const std::string said = wait_for_one(running, number);
        const bool is_right = said.empty() == (number == 0);
        passed += is_right ? 1 : 0;
        fmt::print("{}  {}{}{}\n", is_right ? "ok  " : "MISS", number == 0 ? "no mutant" : mutants[number - 1].name,
                   said.empty() ? "" : "\n        ", said);
        std::fflush(stdout);
    }
    fmt::print("{} passed, {} failed\n", passed, chosen.size() - passed);
    return passed == chosen.size() && passed > 1 ? 0 : 1;
}

}  // namespace tarn::sim
