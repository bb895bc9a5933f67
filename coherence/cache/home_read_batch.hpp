// HomeReadBatch: while it lives, the reads of home's bytes that this thread's steps ask for are gathered; at its end
// they go to the store together, neighbours in one operation.
#pragma once

#include <vector>

#include "coherence/cache/cache.hpp"

namespace tarn {

class HomeReadBatch {
  public:
    explicit HomeReadBatch(Cache& cache) : cache_(cache), outer_(current_) { current_ = this; }
    HomeReadBatch(const HomeReadBatch&) = delete;
    ~HomeReadBatch() {
        current_ = outer_;
        if (!reads_.empty()) cache_.read_home_bytes(std::move(reads_));
    }

    static HomeReadBatch* current() { return current_; }
    void add(Cache::HomeRead read) { reads_.push_back(read); }

  private:
    inline static thread_local HomeReadBatch* current_ = nullptr;
    Cache& cache_;
    HomeReadBatch* outer_;
    std::vector<Cache::HomeRead> reads_;
};

}  // namespace tarn
