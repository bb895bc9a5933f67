// Kernel: what stands below the shards of simulated hosts: their rings, their stacks and the time.
//
// Each loop runs on a stack of its own, as on a thread, but all on one thread: one that waits for its ring hands over,
// and the seed draws who is next. Time is virtual: it goes on when nobody can. So a run depends on nothing but its
// seed. What a shard does between two waits happens at once: interleavings within a turn are not explored.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tests/sim/support/random.hpp"
#include "utils/loop.hpp"

namespace tarn::hosts_sim {

class Kernel {
  public:
    explicit Kernel(uint64_t seed);
    Kernel(const Kernel&) = delete;
    ~Kernel();

    uint64_t now_ns() const { return now_ns_; }
    // How often somebody was given the turn: a clock without ties.
    uint64_t turn_count() const { return turn_count_; }
    // Of all turns so far: who had them, and when.
    uint64_t hash() const { return hash_; }
    sim::Random& random() { return random_; }

    // A loop whose run() goes on, on a stack of its own, until it is stopped and joined.
    std::unique_ptr<Loop> make_loop();
    void join(Loop& loop);
    // Gives it no turn until then: as if its process were stopped. 0: it goes on. Without effect when it has
    // ended.
    void pause(const Loop& loop, uint64_t until_ns);

    // Calls fn so many nanoseconds from now, between two turns.
    void after(uint64_t delay_ns, std::function<void()> fn);

    // Gives turns until done() says so. False: it did not for so long, or nobody can go on, or all do so without end.
    bool run_until(const std::function<bool()>& done, uint64_t duration_ns = 60'000'000'000);
    // For so long, or until nobody can go on.
    void run_for(uint64_t duration_ns);

  private:
    class Ring;
    class Shard;

    // By a shard: hands over, until it is given the turn.
    void hand_over(Ring& ring);
    void give_turn(Ring& ring);
    std::vector<Ring*> able_rings() const;
    // To the next moment at which something happens. False: there is none.
    bool advance();

    sim::Random random_;
    uint64_t now_ns_;
    uint64_t turn_count_ = 0;
    uint64_t hash_ = 14695981039346656037u;
    std::map<const Loop*, std::unique_ptr<Shard>> shards_;
    std::vector<Ring*> rings_;  // attached, in the order in which they were
    std::multimap<uint64_t, std::function<void()>> calls_;
};

}  // namespace tarn::hosts_sim
