// Newcomers: the connections that are in their handshake. Anybody who reaches the socket can open them and then say
// nothing, so their number is bounded: when there is no room, a new one takes the place of the oldest. A client's
// handshake takes some round trips, so it gets through a flood.
//
// Any thread. Owns no connection: it shuts down the socket of one that must go, and who serves that ends it.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <list>
#include <mutex>

namespace tarn::nbd {

class Newcomers {
  public:
    explicit Newcomers(size_t count_max) : count_max_(count_max) {}
    Newcomers(const Newcomers&) = delete;

    // One handshake, as long as this lives; the socket lives longer.
    class Visit {
      public:
        Visit(Newcomers& newcomers, int socket) : newcomers_(newcomers), socket_(socket) {
            const std::lock_guard lock(newcomers_.mutex_);
            if (newcomers_.visits_.size() >= newcomers_.count_max_) newcomers_.make_room();
            place_ = newcomers_.visits_.insert(newcomers_.visits_.end(), this);
        }
        Visit(const Visit&) = delete;
        ~Visit() { end(); }
        // False: this one had to make room for another, and its socket is shut down.
        bool has_place() const { return has_place_.load(std::memory_order_relaxed); }
        // The handshake is over. False: as has_place(). From then on no other one takes the place.
        bool end() {
            const std::lock_guard lock(newcomers_.mutex_);
            if (!has_place()) return false;
            newcomers_.visits_.erase(place_);
            has_place_.store(false, std::memory_order_relaxed);
            return true;
        }

      private:
        friend class Newcomers;
        Newcomers& newcomers_;
        const int socket_;
        std::list<Visit*>::iterator place_;
        std::atomic<bool> has_place_{true};
    };

  private:
    void make_room() {
        Visit& oldest = *visits_.front();
        visits_.pop_front();
        oldest.has_place_.store(false, std::memory_order_relaxed);
        ::shutdown(oldest.socket_, SHUT_RDWR);
    }

    const size_t count_max_;  // at least 1
    std::mutex mutex_;
    std::list<Visit*> visits_;  // oldest first
};

}  // namespace tarn::nbd
