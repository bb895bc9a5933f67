// HomeReadBatch: while it lives, the reads of home's bytes that this shard's steps ask for are gathered; at its end
// they go to the store together, neighbours in one operation. On a thread that is no shard they are not gathered.
#pragma once

#include <utility>
#include <vector>

#include "coherence/cache/cache.hpp"

namespace tarn {

class HomeReadBatch {
  public:
    explicit HomeReadBatch(Cache& cache) : cache_(cache), current_(cache.home_read_batches().here()) {
        if (current_) outer_ = std::exchange(*current_, this);
    }
    HomeReadBatch(const HomeReadBatch&) = delete;
    ~HomeReadBatch() {
        if (current_) *current_ = outer_;
        if (!reads_.empty()) cache_.read_home_bytes(std::move(reads_));
    }

    void add(HomeRead read) { reads_.push_back(read); }

  private:
    Cache& cache_;
    HomeReadBatch** const current_;  // of this shard: the innermost
    HomeReadBatch* outer_ = nullptr;
    std::vector<HomeRead> reads_;
};

}  // namespace tarn
