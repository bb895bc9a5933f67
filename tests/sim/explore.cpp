// tarn_explore: all states that three hosts and one page can reach within bounds, in any order of messages.
//
// Depth first, from one state to each of its successors, over a table of the digests met (64 bits of each; at 50
// million states the odds that any two collide are one in 15,000). Ends with the number of states, and without a
// violation, or with the path to the first one.
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
#include <vector>

#include "tests/sim/failure.hpp"
#include "tests/sim/world.hpp"

namespace tarn::sim {
namespace {

// Open addressing, grows by doubling; 0 marks an empty slot.
class DigestSet {
  public:
    bool insert(uint64_t digest) {
        if ((used_ + 1) * 4 > slots_.size() * 3) grow();
        if (digest == 0) digest = 1;
        size_t index = digest & (slots_.size() - 1);
        while (slots_[index] != 0 && slots_[index] != digest) index = (index + 1) & (slots_.size() - 1);
        if (slots_[index] == digest) return false;
        slots_[index] = digest;
        ++used_;
        return true;
    }
    size_t size() const { return used_; }

  private:
    void grow() {
        std::vector<uint64_t> old(slots_.empty() ? size_t{1} << 20 : slots_.size() * 2);
        old.swap(slots_);
        used_ = 0;
        for (const uint64_t digest : old)
            if (digest != 0) insert(digest);
    }
    std::vector<uint64_t> slots_;
    size_t used_ = 0;
};

struct Node {
    World world;
    std::vector<World::Step> steps;
    size_t next = 0;
};

struct Search {
    Bounds bounds;
    DigestSet met;
    std::vector<std::unique_ptr<Node>> path;
    size_t depth = 0;
    uint64_t transitions = 0;
    uint64_t ends = 0;

    Node& push(const World& world) {
        if (depth == path.size()) path.push_back(std::make_unique<Node>(Node{world, {}, 0}));
        Node& node = *path[depth++];
        node.world = world;
        node.next = 0;
        return node;
    }
    void enter(Node& node) {
        node.world.steps(bounds, node.steps);
        // With nothing on its way, everything begun must have come to its end, whatever might begin next.
        if (!node.world.is_quiet()) return;
        ++ends;
        node.world.check_end();
    }
    void run() {
        enter(push(World(bounds)));
        met.insert(path[0]->world.digest());
        while (depth > 0) {
            Node& node = *path[depth - 1];
            if (node.next == node.steps.size()) {
                --depth;
                continue;
            }
            const World::Step step = node.steps[node.next++];
            Node& after = push(node.world);
            ++transitions;
            after.world.take(bounds, step);
            if (!met.insert(after.world.digest())) {
                --depth;
                continue;
            }
            enter(after);
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

// What a merge has to pass, in less than two minutes on two CPUs; the longest first.
constexpr std::array ci_searches{
    Bounds{.operations = 5, .crashes = 0, .flushes = false, .whole_writes = false},
    Bounds{.operations = 4, .crashes = 0},
    Bounds{.operations = 6, .crashes = 0, .under_way = 1, .flushes = false, .evictions = false, .whole_writes = false},
    Bounds{.operations = 4,
           .crashes = 1,
           .under_way = 0,
           .hello_at_once = true,
           .flushes = false,
           .evictions = false,
           .whole_writes = false},
    Bounds{
        .operations = 3, .crashes = 1, .under_way = 1, .hello_at_once = true, .flushes = false, .whole_writes = false},
    Bounds{.operations = 6,
           .crashes = 1,
           .under_way = 0,
           .hello_at_once = true,
           .reads = false,
           .flushes = false,
           .evictions = false,
           .whole_writes = false},
    Bounds{.operations = 2, .crashes = 1},
};
// Hours, and some gigabytes.
constexpr std::array full_searches{
    Bounds{.operations = 6, .crashes = 0, .under_way = 2, .flushes = false, .evictions = false, .whole_writes = false},
    Bounds{.operations = 6, .crashes = 0, .flushes = false, .evictions = false, .whole_writes = false},
    Bounds{.operations = 5, .crashes = 0},
    Bounds{.operations = 6,
           .crashes = 1,
           .under_way = 0,
           .hello_at_once = true,
           .flushes = false,
           .evictions = false,
           .whole_writes = false},
    Bounds{.operations = 4, .crashes = 1, .under_way = 1, .hello_at_once = true},
    Bounds{.operations = 3, .crashes = 1},
};

// Each in a process of its own, so many at a time. True if all passed.
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
