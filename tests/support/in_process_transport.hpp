// InProcessNetwork: hosts that reach each other by name, inside one process and on one loop, without a socket.
//
// Each direction of a connection is a run of memory that the sender fills and the receiver reads in place: a transport
// as small as one can be, deterministic, and with little room, so that senders wait soon. Used by tests.
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
    // What holds back who sends, in bytes of one direction.
    static constexpr size_t room_bytes = 64 << 10;

    // Says when what was sent arrives.
    class Courier {
      public:
        virtual ~Courier() = default;
        // Calls arrive() with how many of these bytes have arrived by then, once or several times.
        virtual void carry(size_t count, std::function<void(size_t)> arrive) = 0;
    };
    // Without a courier everything arrives at once.
    explicit InProcessNetwork(Courier* courier = nullptr) : courier_(courier) {}

    // The transport of the host of this name. The network outlives it.
    std::unique_ptr<Transport> join(const std::string& name);
    // Breaks all connections of the two, wherever what is on its way has come to.
    void cut(const std::string& one, const std::string& other);

  private:
    class Host;
    struct Wire;
    class End;
    class Memory;
    class Channel;

    Courier* const courier_;
    std::multimap<std::set<std::string>, std::weak_ptr<Wire>> wires_;  // by whom they join
    std::map<std::string, Host*> hosts_;
};

}  // namespace tarn
