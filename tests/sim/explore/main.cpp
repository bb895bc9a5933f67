// tarn_explore: all states that three hosts and one page can reach within bounds, in any order of messages.
//
// Depth first, from one state to each of its successors, over a table of the digests met (60 bits of each; at 50
// million states the odds that any two collide are one in 900). Prints the number of states if nothing was violated,
// else the path to the first violation.
//
// These save work, and skip no state:
//   - Worlds that behave alike have one digest (search_state_digest.cpp, search_state_spent.cpp).
//   - The number of operations begun is no part of a state: a run that has begun fewer may do everything that one with
//     more may. A state is explored again only if it is met with fewer begun than before.
//   - Sleep sets: if a message to one host and a step of another commute, it is enough to take the message first. After
//     a delivery was taken from a state, it sleeps in the states after later steps from there, as long as they commute
//     with it. The state that it would lead to has been met already, after the delivery, or will be from a state with
//     fewer begun: without new operations no state recurs, so a state met with as many begun is finished.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tests/sim/explore/search_state.hpp"
#include "tests/sim/support/failure.hpp"

namespace tarn::sim {
namespace {

// The least number of operations begun with which each state was met. Open addressing, grows by doubling; 0 marks an
// empty slot. The lowest four bits are the number.
class Met {
  public:
    // True if the state is new, or was met with fewer operations begun than before.
    bool insert(uint64_t digest, unsigned started) {
        if ((used_ + 1) * 4 > slots_.size() * 3) grow();
        const uint64_t key = std::max<uint64_t>(digest & ~number_mask, number_mask + 1);
        uint64_t& slot = slots_[find(key)];
        if (slot == 0) {
            slot = key | started;
            ++used_;
            return true;
        }
        if ((slot & number_mask) <= started) return false;
        slot = key | started;
        return true;
    }
    size_t size() const { return used_; }

  private:
    static constexpr uint64_t number_mask = 15;

    size_t find(uint64_t key) const {
        size_t index = (key >> 4) & (slots_.size() - 1);
        while (slots_[index] != 0 && (slots_[index] & ~number_mask) != key) index = (index + 1) & (slots_.size() - 1);
        return index;
    }
    void grow() {
        std::vector<uint64_t> old(slots_.empty() ? size_t{1} << 20 : slots_.size() * 2);
        old.swap(slots_);
        for (const uint64_t slot : old)
            if (slot != 0) slots_[find(slot & ~number_mask)] = slot;
    }
    std::vector<uint64_t> slots_;
    size_t used_ = 0;
};

struct Node {
    SearchState world;
    std::vector<SearchState::Step> steps;
    uint64_t digest = 0;
    size_t next = 0;
    std::vector<SearchState::Step> asleep;  // deliveries that need not be taken here
};

struct Search {
    Bounds bounds;
    Met met;
    std::vector<std::unique_ptr<Node>> path;
    size_t depth = 0;
    uint64_t transitions = 0;
    uint64_t ends = 0;

    // As many nodes as before are kept, with their memory.
    Node& push(const SearchState& world) {
        if (depth == path.size()) path.push_back(std::make_unique<Node>(Node{world, {}, 0, 0, {}}));
        Node& node = *path[depth++];
        node.world = world;
        node.next = 0;
        node.asleep.clear();
        return node;
    }
    static bool is_asleep(const Node& node, const SearchState::Step& step) {
        return step.message != 0 &&
               std::ranges::find(node.asleep, step.message, &SearchState::Step::message) != node.asleep.end();
    }
    void enter(Node& node) {
        node.world.steps(bounds, node.steps);
        // With nothing on its way, everything begun must have come to its end, whatever might begin next.
        if (node.world.is_quiet()) {
            ++ends;
            node.world.check_end();
        }
        std::erase_if(node.steps, [&](const SearchState::Step& step) { return is_asleep(node, step); });
        // The newest message first, and spent ones last: so a state is first met with as many spent messages as
        // possible, and an effect that one has after all is found.
        std::ranges::sort(node.steps, {}, [](const SearchState::Step& step) {
            return std::tuple(step.is_idle, ~step.message, step.what, step.host, step.index);
        });
    }
    void run() {
        Node& first = push(SearchState(bounds));
        first.digest = first.world.digest();
        met.insert(first.digest, 0);
        enter(first);
        while (depth > 0) {
            Node& node = *path[depth - 1];
            if (node.next == node.steps.size()) {
                --depth;
                continue;
            }
            const SearchState::Step step = node.steps[node.next++];
            Node& after = push(node.world);
            ++transitions;
            after.world.take(bounds, step);
            const uint64_t digest = after.world.digest();
            require(!step.is_idle || digest == node.digest, "a spent message had an effect");
            if (met.insert(digest, after.world.started())) {
                after.digest = digest;
                for (const SearchState::Step& each : node.asleep)
                    if (node.world.commutes(bounds, each, step)) after.asleep.push_back(each);
                enter(after);
            } else {
                --depth;
            }
            if (step.message != 0) node.asleep.push_back(step);
        }
    }
    void print_path() const {
        for (size_t index = 0; index < depth && index < path.size(); ++index) {
            const Node& node = *path[index];
            if (node.next > 0 && node.next <= node.steps.size())
                std::printf("  %s\n", node.world.describe(node.steps[node.next - 1]).c_str());
        }
    }
};

std::string describe(const Bounds& bounds) {
    std::string text = std::to_string(bounds.operations) + " operations (";
    if (bounds.reads) text += "reads, ";
    text += "writes";
    if (bounds.whole_writes) text += ", whole writes";
    if (bounds.evictions) text += ", evictions";
    if (bounds.flushes) text += ", flushes";
    text += "), " + std::to_string(bounds.crashes) + (bounds.crashes == 1 ? " crash" : " crashes");
    if (bounds.under_way != Bounds{}.under_way)
        text += ", begun with at most " + std::to_string(bounds.under_way) + " messages under way";
    if (bounds.hello_at_once) text += ", hello at once";
    return text;
}

bool explore(const Bounds& bounds) {
    const auto start = std::chrono::steady_clock::now();
    Search search{.bounds = bounds, .met = {}, .path = {}};
    try {
        search.run();
    } catch (const Failure& failure) {
        std::printf("%s: %s\n", describe(bounds).c_str(), failure.what());
        search.print_path();
        return false;
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%9zu states  %10llu steps  %6llu at rest  %4.0f s  %s\n", search.met.size(),
                static_cast<unsigned long long>(search.transitions), static_cast<unsigned long long>(search.ends),
                seconds.count(), describe(bounds).c_str());
    return true;
}

constexpr unsigned any_number = Bounds{}.under_way;
constexpr Bounds all_kinds{};
constexpr Bounds reads_writes_evictions{.flushes = false, .whole_writes = false};
constexpr Bounds reads_writes{.flushes = false, .evictions = false, .whole_writes = false};
constexpr Bounds writes{.reads = false, .flushes = false, .evictions = false, .whole_writes = false};

constexpr Bounds of(Bounds kinds, unsigned operations, unsigned crashes, unsigned under_way = any_number) {
    kinds.operations = operations;
    kinds.crashes = crashes;
    kinds.under_way = under_way;
    return kinds;
}

// Must pass before a merge, in less than two minutes on two CPUs; the longest first.
constexpr std::array ci_searches{
    of(all_kinds, 3, 1), of(reads_writes_evictions, 6, 0), of(reads_writes, 4, 1, 0), of(writes, 6, 1, 0),
    of(all_kinds, 4, 0),
};
// Takes hours, and some gigabytes.
constexpr std::array full_searches{
    of(all_kinds, 5, 0),
    of(reads_writes, 6, 1, 0),
    of(reads_writes, 4, 1, 1),
    of(reads_writes, 4, 1),
};

// Runs each in a process of its own, this many at a time. True if all passed.
bool explore_all(std::span<const Bounds> searches, unsigned jobs) {
    bool passed = true;
    unsigned running = 0;
    const auto wait_for_one = [&] {
        int status = 0;
        passed &= ::wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        --running;
    };
    for (const Bounds& bounds : searches) {
        if (running == jobs) wait_for_one();
        std::fflush(stdout);
        if (::fork() == 0) {
            const bool holds = explore(bounds);
            std::fflush(stdout);
            std::_Exit(holds ? 0 : 1);
        }
        ++running;
    }
    while (running > 0) wait_for_one();
    return passed;
}

constexpr const char* usage =
    "usage: tarn_explore [--jobs COUNT] [--full]\n"
    "       tarn_explore [--operations N] [--crashes N] [--under-way N] [--hello-at-once 0|1]\n"
    "                    [--reads|--whole|--evictions|--flushes 0|1]\n";

int run(int argc, char** argv) {
    Bounds bounds;
    bool is_single = false;
    bool is_full = false;
    unsigned jobs = 1;
    for (int index = 1; index < argc; ++index) {
        const std::string name = argv[index];
        if (name == "--full") {
            is_full = true;
            continue;
        }
        if (index + 1 == argc) {
            std::fputs(usage, stderr);
            return 2;
        }
        const auto value = static_cast<unsigned>(std::atoi(argv[++index]));
        if (name == "--jobs") {
            jobs = std::max(value, 1u);
            continue;
        }
        is_single = true;
        if (name == "--operations") bounds.operations = value;
        if (name == "--crashes") bounds.crashes = value;
        if (name == "--under-way") bounds.under_way = value;
        if (name == "--hello-at-once") bounds.hello_at_once = value != 0;
        if (name == "--reads") bounds.reads = value != 0;
        if (name == "--whole") bounds.whole_writes = value != 0;
        if (name == "--evictions") bounds.evictions = value != 0;
        if (name == "--flushes") bounds.flushes = value != 0;
    }
    if (is_single) return explore(bounds) ? 0 : 1;
    std::printf("all states of 3 hosts and 1 page, one operation of each host at a time, in any order of messages:\n");
    const std::span<const Bounds> searches = is_full ? std::span<const Bounds>(full_searches) : ci_searches;
    return explore_all(searches, jobs) ? 0 : 1;
}

}  // namespace
}  // namespace tarn::sim

int main(int argc, char** argv) {
    return tarn::sim::run(argc, argv);
}
