// Strangers: unauthenticated connections. Anybody who reaches the port can open them, so their number is bounded, in
// all and per origin. When there is no room a new connection replaces the oldest one. A host needs its place for only
// two round trips, so it gets through a flood.
//
// On one shard. Owns no connection: it shuts down one that must go, and the task that serves it ends it.
#pragma once

#include <list>

#include "coherence/fabric/transport/transport.hpp"

namespace tarn {

class Strangers {
  public:
    static constexpr size_t count_max = 128;
    static constexpr size_t count_of_origin_max = 16;

    // Registers one connection as long as this lives; the connection lives longer.
    class Visit {
      public:
        Visit(Strangers& strangers, Connection& connection);
        Visit(const Visit&) = delete;
        ~Visit() { leave(); }
        // The peer is authenticated now, or gone.
        void leave();
        // False: this one had to make room for another.
        bool has_place() const { return has_place_; }

      private:
        friend class Strangers;
        Strangers& strangers_;
        Connection& connection_;
        const Connection::Origin origin_;
        std::list<Visit*>::iterator place_;
        bool has_place_ = true;
    };

  private:
    void make_room(const Visit& newcomer);

    std::list<Visit*> visits_;  // oldest first
};

}  // namespace tarn
