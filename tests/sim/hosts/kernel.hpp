// Kernel: what stands below the shards of simulated hosts: their rings, their threads and the time.
//
// Each loop runs on a thread of its own, as it is shipped, but only one thread runs at a time: one that waits for its
// ring hands over, and the seed draws who is next. Time is virtual: it goes on when nobody can. So a run depends on
// nothing but its seed. What a thread does between two waits happens at once: threads within a turn are not explored.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <semaphore>
#include <thread>
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

    // A loop whose run() goes on, on a thread of its own, until it is stopped and joined.
    std::unique_ptr<Loop> make_loop();
    void join(Loop& loop);

    // Calls fn so many nanoseconds from now, between two turns.
    void after(uint64_t delay_ns, std::function<void()> fn);

    // Gives turns until done() says so. False: nobody can go on, or it took too many turns.
    bool run_until(const std::function<bool()>& done, uint64_t turns_max = 2'000'000);

  private:
    class Ring;
    struct Shard {
        Ring* ring = nullptr;
        std::unique_ptr<std::thread> thread;
    };

    // On the thread of a shard: hands over, until it is given the turn.
    void hand_over(Ring& ring);
    void give_turn(Ring& ring);
    // To the next moment at which something happens. False: there is none.
    bool advance();

    sim::Random random_;
    uint64_t now_ns_;
    uint64_t turn_count_ = 0;
    uint64_t hash_ = 14695981039346656037u;
    std::binary_semaphore main_turn_{0};
    std::map<const Loop*, Shard> shards_;
    std::vector<Ring*> rings_;  // attached, in the order in which they were
    std::multimap<uint64_t, std::function<void()>> calls_;
};

}  // namespace tarn::hosts_sim
