// Load: the clients of all hosts, each with one operation at a time and no think time, and their measurements.
//
// They use a System: hosts that hold pages by some protocol. Clients have cores of their own; the host's one CPU
// handles only messages.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "coherence/membership/range_map.hpp"
#include "tests/sim/performance/machine.hpp"
#include "tests/sim/support/random.hpp"

namespace tarn::sim_performance {

using sim::Random;

struct Operation {
    enum class Kind : uint8_t { read, write, write_whole };
    Kind kind = Kind::read;
    uint64_t page = 0;  // its home is the host of this number, modulo the number of hosts
};

class System {
  public:
    using Finished = std::function<void(HostId host, unsigned client, bool was_hit)>;

    virtual ~System() = default;
    // Answered by `finished`, in a later event of the machine.
    virtual void start(HostId host, unsigned client, const Operation& operation) = 0;

    Finished finished;
};

// Accesses to one page on one host: those that only read overlap, those that write take turns.
struct Latch {
    unsigned inside = 0;  // under way, or waiting for their turn
    Time writer_until = 0;
    Time readers_until = 0;

    // When an access that begins now ends.
    Time enter(Time now, Time duration, bool writes) {
        ++inside;
        const Time begins = std::max(now, writes ? std::max(writer_until, readers_until) : writer_until);
        Time& until = writes ? writer_until : readers_until;
        until = std::max(until, begins + duration);
        return begins + duration;
    }
};

// A miss is an operation that had to wait for messages.
struct Measured {
    double seconds = 0;
    uint64_t operations = 0;
    uint64_t misses = 0;
    uint64_t messages = 0;
    uint64_t messages_aside = 0;   // messages that no operation waits for
    std::vector<Time> latencies;   // of all operations, sorted
    std::vector<Time> waits;       // of misses, sorted
    std::vector<uint64_t> shares;  // misses of each host

    double per_second() const { return static_cast<double>(operations) / seconds; }
    double misses_per_second() const { return static_cast<double>(misses) / seconds; }
    double hit_ratio() const;
    double messages_per_operation() const;
    double max_to_min_share() const;  // infinite if a host had nothing
};

double microseconds(const std::vector<Time>& sorted, double percentile);

// For work that no operation waits for.
bool is_aside(MessageKind kind);

class Load {
  public:
    using Next = std::function<Operation(HostId host, Random& random)>;

    Load(Machine& machine, System& system, unsigned clients_per_host, uint64_t seed, Next next);

    void begin();
    Measured measure(Time warm_up, Time duration);
    // The counts since the last call.
    Measured take();

  private:
    struct Client {
        Random random;
        Time began = 0;
    };
    void issue(HostId host, unsigned client);
    void finished(HostId host, unsigned client, bool was_hit);

    Machine& machine_;
    System& system_;
    unsigned clients_per_host_;
    Next next_;
    std::vector<Client> clients_;
    Measured counted_;
};

// Pages by Zipf's law; which ones are popular is shuffled, so that they have different homes.
class Zipf {
  public:
    Zipf(uint64_t count, double exponent);
    uint64_t draw(Random& random) const;

  private:
    std::vector<double> cumulative_;
};

}  // namespace tarn::sim_performance
