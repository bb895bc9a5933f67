// InProcessNetwork: hosts that reach each other by name, inside one process and on one loop, without a socket.
//
// Each direction of a connection is a run of memory that the sender fills and the receiver reads in place: a minimal
// transport, deterministic, and with little room, so that senders soon wait. Used by tests.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "coherence/fabric/transport/transport.hpp"

namespace tarn {

class InProcessNetwork {
  public:
    // The room of one direction in bytes; a sender waits when it is full.
    static constexpr size_t room_bytes = 64 << 10;
    static constexpr size_t incoming_cpu_count = 2;

    // Decides when sent bytes arrive.
    class Courier {
      public:
        virtual ~Courier() = default;
        // Calls arrive() once or several times, with how many of these bytes have arrived.
        virtual void carry(size_t count, std::function<void(size_t)> arrive) = 0;
    };
    // Without a courier bytes arrive at once.
    explicit InProcessNetwork(Courier* courier = nullptr) : courier_(courier) {}

    // The transport of the host of this name. The network outlives it.
    std::unique_ptr<Transport> join(const std::string& name);
    // Breaks all connections of the two hosts, whatever is under way on them.
    void cut(const std::string& one, const std::string& other);

  private:
    class Host;
    struct Wire;
    class End;
    class Memory;
    class Channel;

    Courier* const courier_;
    std::multimap<std::set<std::string>, std::weak_ptr<Wire>> wires_;  // by the hosts that they join
    std::map<std::string, Host*> hosts_;
};

}  // namespace tarn
