// VolumeContext: what all handles on this host share, whatever their volume. One for each Cache, which outlives it.
//
// The turns of tasks that must not run side by side, and the answers to what handles on other hosts ask this one. Any
// shard.
#pragma once

#include "coherence/cache/cache.hpp"
#include "coherence/fabric/calls.hpp"
#include "coherence/home_store/volume_turns.hpp"

namespace tarn {

struct VolumeContext {
    explicit VolumeContext(Cache& of) : cache(of) {}
    VolumeContext(const VolumeContext&) = delete;

    // Before any link can come up.
    void answer_calls(CallHandlers& calls);

    Cache& cache;
    VolumeTurns cutting_turns;  // of tasks that cut a volume and zero what is past its new end
    VolumeTurns holding_turns;  // of tasks that hold pages while they wait for others
};

}  // namespace tarn
