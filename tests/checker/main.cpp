// tarn_checker: drives one volume through all its hosts at once, breaks things meanwhile, and checks what clients saw.
//
// Rounds: clients on every host read, write, trim, zero and flush for a while, one page or several with a request; one
// fault comes and goes; then everything is read back and each register's history must be linearizable (C2), with no
// flushed write lost (D1), and no session deceived about a loss (D4). At the end each host is made to lose what others
// wrote (LossProof). What the faults are in this cluster is the business of a hook: a program that is called with a
// verb and a host's name.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <map>
#include <random>

#include "tests/checker/clients.hpp"
#include "tests/checker/loss_proof.hpp"
#include "tests/checker/session_history.hpp"

extern char** environ;

namespace tarn::checker {
namespace {

using namespace std::chrono_literals;

constexpr auto hang_after = 60s;
constexpr auto links_settle = 300ms;

struct Fault {
    const char* begin;  // what the hook is told; null: this round has none
    const char* end;
    bool ends_process = false;
    bool loses_memory = false;
};
constexpr Fault faults[] = {
    {.begin = "pause", .end = "resume"},
    {.begin = "cut", .end = "heal"},
    {.begin = "mute", .end = "unmute"},
    {.begin = "slow", .end = "fast"},
    {.begin = "crash", .end = "start", .ends_process = true},
    {.begin = "kill", .end = "start", .ends_process = true, .loses_memory = true},
    {.begin = nullptr, .end = nullptr},
};

class Checker {
  public:
    Checker(std::vector<HostUnderTest> hosts, uint64_t volume_size_bytes, uint64_t seed, std::string hook,
            std::vector<std::string> allowed)
        : clients_(std::move(hosts), volume_size_bytes, seed),
          random_(seed),
          hook_(std::move(hook)),
          allowed_(std::move(allowed)) {}

    // Nothing if all was well.
    std::optional<std::string> round(std::chrono::milliseconds length) {
        const size_t host = random_() % clients_.hosts().size();
        const Fault& fault = pick_fault();
        clients_.start();
        std::this_thread::sleep_for(length / 4);
        Loss loss{.begun = Recorder::now()};
        if (fault.begin) {
            if (fault.ends_process) clients_.set_up(host, false);
            if (!call_hook(fault.begin, host)) return fmt::format("the hook failed to {}", fault.begin);
            std::this_thread::sleep_for(length / 4);
            if (!call_hook(fault.end, host)) return fmt::format("the hook failed to {}", fault.end);
            clients_.set_up(host, true);
            ++fault_counts_[fault.begin];
        }
        std::this_thread::sleep_for(links_settle);
        loss.ended = Recorder::now();
        if (fault.loses_memory) clients_.recorder().add_loss(loss);
        std::this_thread::sleep_for(length / 4);
        if (!clients_.stop(hang_after)) return "an operation does not end:\n" + clients_.say();
        clients_.flush_and_close();
        if (!clients_.read_all()) {
            const std::string torn = clients_.torn();
            return torn.empty() ? "the volume cannot be read after the round" : torn;
        }
        if (const std::string torn = clients_.torn(); !torn.empty()) return torn;
        if (!clients_.flush_once()) return "no new session can flush the volume";
        return check();
    }

    // Each host in turn, where hosts may be killed.
    std::optional<std::string> prove_losses_are_told() {
        if (std::ranges::find(allowed_, "kill") == allowed_.end()) return std::nullopt;
        clients_.close_sessions();
        LossProof proof(clients_.hosts(), [this](const char* verb, size_t host) { return call_hook(verb, host); });
        for (size_t victim = 0; victim < clients_.hosts().size(); ++victim)
            if (auto wrong = proof.prove(victim, victim)) return wrong;
        proven_count_ = proof.lost_count();
        return std::nullopt;
    }

    size_t operation_count() const { return operation_count_; }
    std::string losses() {
        return fmt::format(
            "{} sessions lost writes, {} reads and {} flushes refused; {} pages lost on purpose, and told",
            loser_count_, clients_.recorder().refused_reads(), clients_.recorder().refused_flushes(), proven_count_);
    }
    size_t register_count() const { return values_.size(); }
    std::string fault_counts() const {
        std::string text;
        for (const auto& [what, count] : fault_counts_)
            text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, count);
        return text.empty() ? "none" : text;
    }

  private:
    const Fault& pick_fault() {
        for (;;) {
            const Fault& fault = faults[random_() % std::size(faults)];
            if (!fault.begin || std::ranges::find(allowed_, fault.begin) != allowed_.end()) return fault;
        }
    }

    bool call_hook(const char* verb, size_t host) {
        std::string name = clients_.hosts()[host].name;
        std::string verb_text = verb;
        char* arguments[] = {hook_.data(), verb_text.data(), name.data(), nullptr};
        pid_t child = 0;
        int status = 0;
        if (::posix_spawn(&child, hook_.c_str(), nullptr, nullptr, arguments, environ) != 0) return false;
        return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }

    std::optional<std::string> check() {
        Recorder& recorder = clients_.recorder();
        std::set<SessionNumber> all_losers;
        for (const auto& [where, history] : recorder.histories()) {
            Value& value = values_[where];
            if (const auto wrong = explain_violation(value, history, recorder.flushes(), recorder.losses()))
                return fmt::format("bytes {} to {} of the volume: {}", where.offset_bytes,
                                   where.offset_bytes + where.size_bytes - 1, *wrong);
            if (const auto wrong = explain_silence(value, history, recorder.flushes(), recorder.sessions()))
                return fmt::format("bytes {} to {} of the volume: {}", where.offset_bytes,
                                   where.offset_bytes + where.size_bytes - 1, *wrong);
            all_losers.merge(losers(value, history));
            value = std::ranges::max(history, {}, [](const Operation& operation) {
                        return operation.is_write ? 0 : operation.invoked;
                    }).value;
        }
        operation_count_ += recorder.count();
        loser_count_ += all_losers.size();
        recorder.clear();
        return std::nullopt;
    }

    Clients clients_;
    std::mt19937_64 random_;
    std::string hook_;
    std::vector<std::string> allowed_;
    std::map<Register, Value> values_;  // after the last round
    std::map<std::string, unsigned> fault_counts_;
    size_t operation_count_ = 0;
    size_t loser_count_ = 0;
    size_t proven_count_ = 0;
};

}  // namespace
}  // namespace tarn::checker

int main(int argc, char** argv) {
    using namespace tarn::checker;
    uint64_t size = 0;
    uint64_t seed = std::random_device()();
    unsigned seconds = 60;
    std::string hook;
    std::vector<std::string> host_arguments;
    std::vector<std::string> allowed{"pause", "cut", "mute", "slow", "crash", "kill"};
    CLI::App app("Checks that a volume is linearizable over all its hosts, whatever breaks.");
    app.add_option("--size", size, "the volume's size, in bytes")->required();
    app.add_option("--time", seconds, "seconds")->capture_default_str();
    app.add_option("--seed", seed, "of what clients do and what breaks; timing is not repeated");
    app.add_option("--hook", hook, "called as HOOK pause|resume|cut|heal|mute|unmute|slow|fast|crash|kill|start HOST")
        ->required();
    app.add_option("--faults", allowed, "those to try")->delimiter(',')->capture_default_str();
    app.add_option("HOST", host_arguments, "NAME=ENDPOINT[,ENDPOINT...]: NBD URIs and files; one client each")
        ->required();
    CLI11_PARSE(app, argc, argv);

    std::vector<HostUnderTest> hosts;
    for (const std::string& argument : host_arguments) {
        const size_t equals = argument.find('=');
        HostUnderTest host{.name = argument.substr(0, equals), .endpoints = {}};
        for (size_t at = equals + 1; at != 0 && at < argument.size();) {
            const size_t end = std::min(argument.find(',', at), argument.size());
            host.endpoints.push_back(argument.substr(at, end - at));
            at = end + 1;
        }
        hosts.push_back(std::move(host));
    }

    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    Checker checker(std::move(hosts), size, seed, hook, allowed);
    unsigned rounds = 0;
    do {
        ++rounds;
        if (const auto wrong = checker.round(std::chrono::milliseconds(4000))) {
            fmt::print(stderr, "round {} (seed {}): {}\n", rounds, seed, *wrong);
            std::fflush(nullptr);
            std::_Exit(1);  // threads may hang in calls that do not end
        }
    } while (std::chrono::steady_clock::now() < deadline);
    if (const auto wrong = checker.prove_losses_are_told()) {
        fmt::print(stderr, "losses (seed {}): {}\n", seed, *wrong);
        return 1;
    }
    fmt::print("{} operations on {} registers in {} rounds; faults: {}; {}; every register is linearizable\n",
               checker.operation_count(), checker.register_count(), rounds, checker.fault_counts(), checker.losses());
    return 0;
}
