// PerLoop: one value for each loop, for state that a shard keeps to itself.
//
// The owner has it as a member, so two of them in one process share nothing. A value is used by its loop's thread only.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "utils/loop.hpp"

namespace tarn {

template <class T>
class PerLoop {
  public:
    // The loops outlive it; there are few.
    explicit PerLoop(std::span<Loop* const> loops)
        : loops_(loops.begin(), loops.end()), values_(std::make_unique<Value[]>(loops.size())) {}

    // Of the loop that this thread runs; null: it runs none of them.
    T* here() {
        const Loop* const loop = Loop::current();
        for (size_t i = 0; i < loops_.size(); ++i)
            if (loops_[i] == loop) return &values_[i].value;
        return nullptr;
    }

  private:
    struct alignas(64) Value {
        T value{};
    };
    const std::vector<Loop*> loops_;
    const std::unique_ptr<Value[]> values_;
};

}  // namespace tarn
