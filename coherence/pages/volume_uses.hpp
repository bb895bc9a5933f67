// VolumeUses: counts the handles, and the tasks without one, that use each volume on this host. Any thread.
#pragma once

#include <map>
#include <mutex>
#include <utility>

#include "tiers/page.hpp"
#include "utils/broadcast.hpp"
#include "utils/task.hpp"

namespace tarn {

class VolumeUses {
  public:
    class Use {
      public:
        Use() = default;
        Use(VolumeUses& uses, VolumeId volume) : uses_(&uses), volume_(volume) { uses.begin(volume); }
        Use(Use&& other) noexcept : uses_(std::exchange(other.uses_, nullptr)), volume_(other.volume_) {}
        Use& operator=(Use&& other) noexcept {
            std::swap(uses_, other.uses_);
            std::swap(volume_, other.volume_);
            return *this;
        }
        ~Use() {
            if (uses_) uses_->end(volume_);
        }

      private:
        VolumeUses* uses_ = nullptr;
        VolumeId volume_ = 0;
    };

    bool any_of(VolumeId volume) const {
        const std::lock_guard guard(mutex_);
        return counts_.contains(volume);
    }
    // Waits until nobody uses the volume here.
    Task<> none_of(VolumeId volume) {
        for (uint64_t seen = ended_.count(); any_of(volume); seen = ended_.count()) co_await ended_.next(seen);
    }

  private:
    void begin(VolumeId volume) {
        const std::lock_guard guard(mutex_);
        ++counts_[volume];
    }
    void end(VolumeId volume) {
        {
            const std::lock_guard guard(mutex_);
            const auto found = counts_.find(volume);
            if (--found->second > 0) return;
            counts_.erase(found);
        }
        ended_.announce();
    }

    mutable std::mutex mutex_;  // never held across a wait
    std::map<VolumeId, unsigned> counts_;
    Broadcast ended_;
};

}  // namespace tarn
