// VolumeTurns: lets one task of this host at a time work on a volume. Any shard; a waiting task goes on there.
#pragma once

#include <mutex>
#include <set>
#include <utility>

#include "tiers/page.hpp"
#include "utils/broadcast.hpp"
#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

class VolumeTurns {
  public:
    class Turn {
      public:
        Turn(VolumeTurns& turns, VolumeId volume) : turns_(&turns), volume_(volume) {}
        Turn(Turn&& other) noexcept : turns_(std::exchange(other.turns_, nullptr)), volume_(other.volume_) {}
        Turn& operator=(Turn&& other) noexcept {
            std::swap(turns_, other.turns_);
            std::swap(volume_, other.volume_);
            return *this;
        }
        ~Turn() { end(); }
        void end() {
            if (VolumeTurns* const turns = std::exchange(turns_, nullptr)) turns->end(volume_);
        }

      private:
        VolumeTurns* turns_;
        VolumeId volume_;
    };

    // A Result only so that the waiting task may give up (with_timeout()).
    Task<Result<Turn>> take(VolumeId volume) {
        for (uint64_t seen = ended_.count(); !try_take(volume); seen = ended_.count()) co_await ended_.next(seen);
        co_return Turn(*this, volume);
    }
    // Waits until nobody has this volume's turn.
    Task<> idle(VolumeId volume) {
        for (uint64_t seen = ended_.count(); is_taken(volume); seen = ended_.count()) co_await ended_.next(seen);
    }

  private:
    bool try_take(VolumeId volume) {
        const std::lock_guard guard(mutex_);
        return taken_.insert(volume).second;
    }
    bool is_taken(VolumeId volume) {
        const std::lock_guard guard(mutex_);
        return taken_.contains(volume);
    }
    void end(VolumeId volume) {
        {
            const std::lock_guard guard(mutex_);
            taken_.erase(volume);
        }
        ended_.announce();
    }

    std::mutex mutex_;  // never held across a wait
    std::set<VolumeId> taken_;
    Broadcast ended_;
};

}  // namespace tarn
