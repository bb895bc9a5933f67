// InProcessNetwork: hosts that reach each other by name, inside one process and on one loop, without a socket.
//
// Each direction of a connection is a run of memory that the sender fills and the receiver reads in place: a transport
// as small as one can be, deterministic, and with little room, so that senders wait soon. Used by tests.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "coherence/fabric/transport/transport.hpp"

namespace tarn {

class InProcessNetwork {
  public:
    // What holds back who sends, in bytes of one direction.
    static constexpr size_t room_bytes = 64 << 10;

    // The transport of the host of this name. The network outlives it.
    std::unique_ptr<Transport> join(const std::string& name);

  private:
    class Host;
    std::map<std::string, Host*> hosts_;
};

}  // namespace tarn
