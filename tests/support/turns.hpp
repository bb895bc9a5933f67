// turns: lets a loop do all that need not wait for anything. For tests that hold something back.
#pragma once

#include "utils/loop.hpp"
#include "utils/task.hpp"

namespace tarn {

inline Task<bool> turns(Loop& loop) {
    for (int i = 0; i < 100; ++i) co_await Yield(loop);
    co_return true;
}

}  // namespace tarn
