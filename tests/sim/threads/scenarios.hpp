// The scenarios of the model, by what they look at.
#pragma once

#include <span>

#include "tests/sim/threads/model.hpp"

namespace tarn::threads {

std::span<const Scenario> latch_scenarios();  // SpinLock, FrameWord
std::span<const Scenario> table_scenarios();  // FrameIndex, FrameSet, FramePool
std::span<const Scenario> page_scenarios();   // Pages, LossView
std::span<const Scenario> wait_scenarios();   // PostedCalls, Broadcast, FrameSupply, WritableShare

inline std::vector<Scenario> all_scenarios() {
    std::vector<Scenario> all;
    for (const auto& some : {latch_scenarios(), table_scenarios(), page_scenarios(), wait_scenarios()})
        all.insert(all.end(), some.begin(), some.end());
    return all;
}

}  // namespace tarn::threads
