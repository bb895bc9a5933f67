// VolumeContext: what all handles on this host share, whatever their volume. One for each Cache, which outlives it.
//
// The turns of tasks that must not run side by side, and the answers to what handles on other hosts ask this one. Any
// shard.
#pragma once

#include <string>

#include "coherence/cache/cache.hpp"
#include "coherence/cache/volume_turns.hpp"
#include "coherence/fabric/calls.hpp"

namespace tarn {

class VolumeContext {
  public:
    explicit VolumeContext(Cache& cache) : cache_(cache) {}
    VolumeContext(const VolumeContext&) = delete;

    // Before any link can come up.
    void answer_calls(CallHandlers& calls);

    Cache& cache() { return cache_; }
    // Of tasks that cut a volume and zero what is past its new end.
    VolumeTurns& cutting_turns() { return cutting_turns_; }
    // Of tasks that hold pages while they wait for others.
    VolumeTurns& holding_turns() { return holding_turns_; }

  private:
    Task<Result<std::string>> tell_stored_runs(std::string request);
    Task<Result<std::string>> tell_zeroing_over(std::string request);

    Cache& cache_;
    VolumeTurns cutting_turns_;
    VolumeTurns holding_turns_;
};

}  // namespace tarn
