// tarn_explore: all states that three hosts and one page can reach within bounds, in any order of messages.
//
// Depth first, from one state to each of its successors, over a table of the digests met (64 bits of each; at 50
// million states the odds that any two collide are one in 15,000). Ends with the number of states, and without a
// violation, or with the path to the first one.
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
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
    size_t states_max = 0;  // 0: to completion
    DigestSet met;
    std::vector<std::unique_ptr<Node>> path;
    size_t depth = 0;
    size_t deepest = 0;
    uint64_t transitions = 0;
    uint64_t ends = 0;

    Node& push(const World& world) {
        if (depth == path.size()) path.push_back(std::make_unique<Node>(Node{world, {}, 0}));
        Node& node = *path[depth++];
        node.world = world;
        node.next = 0;
        deepest = std::max(deepest, depth);
        return node;
    }
    void enter(Node& node) {
        node.world.steps(bounds, node.steps);
        // With nothing on its way, everything begun must have come to its end, whatever might begin next.
        if (!node.world.is_quiet()) return;
        ++ends;
        node.world.check_end();
    }
    bool run() {
        enter(push(World(bounds)));
        met.insert(path[0]->world.digest());
        while (depth > 0) {
            if (states_max != 0 && met.size() >= states_max) return false;
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
        return true;
    }
    void print_path() const {
        for (size_t index = 0; index < depth && index < path.size(); ++index) {
            const Node& node = *path[index];
            if (node.next > 0 && node.next <= node.steps.size())
                std::printf("  %s\n", node.world.describe(node.steps[node.next - 1]).c_str());
        }
    }
};

int explore(const Bounds& bounds, size_t states_max) {
    const auto start = std::chrono::steady_clock::now();
    Search search{.bounds = bounds, .states_max = states_max, .met = {}, .path = {}};
    std::printf("3 hosts, 1 page, %u operations (%u at once%s%s%s), %u crashes: ", bounds.operations,
                bounds.started_at_once, bounds.flushes ? ", flushes" : "", bounds.evictions ? ", evictions" : "",
                bounds.whole_writes ? ", whole-page writes" : "", bounds.crashes);
    std::fflush(stdout);
    bool is_complete = false;
    try {
        is_complete = search.run();
    } catch (const Failure& failure) {
        std::printf("%s\n", failure.what());
        search.print_path();
        return 1;
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%zu states, %llu transitions, %llu at rest, depth %zu, %.0f s%s\n", search.met.size(),
                static_cast<unsigned long long>(search.transitions), static_cast<unsigned long long>(search.ends),
                search.deepest, seconds.count(), is_complete ? "" : ", not complete");
    return is_complete ? 0 : 1;
}

int run(int argc, char** argv) {
    Bounds bounds;
    size_t states_max = 0;
    for (int index = 1; index + 1 < argc; index += 2) {
        const std::string name = argv[index];
        const auto value = static_cast<unsigned>(std::atoi(argv[index + 1]));
        if (name == "--operations") bounds.operations = value;
        if (name == "--crashes") bounds.crashes = value;
        if (name == "--at-once") bounds.started_at_once = value;
        if (name == "--flushes") bounds.flushes = value != 0;
        if (name == "--evictions") bounds.evictions = value != 0;
        if (name == "--whole") bounds.whole_writes = value != 0;
        if (name == "--under-way") bounds.under_way = value;
        if (name == "--hello-at-once") bounds.hello_at_once = value != 0;
        if (name == "--states") states_max = value;
    }
    return explore(bounds, states_max);
}

}  // namespace
}  // namespace tarn::sim

int main(int argc, char** argv) {
    return tarn::sim::run(argc, argv);
}
