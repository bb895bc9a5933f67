// HomeReader: reads home's bytes from the store, for requests that memory cannot answer. Neighbours are read together.
#pragma once

#include <atomic>
#include <vector>

#include "coherence/executor/host_parts.hpp"
#include "coherence/executor/stripes.hpp"
#include "coherence/fabric/peers.hpp"
#include "coherence/membership/membership.hpp"
#include "utils/task.hpp"

namespace tarn {

class HomeReader {
  public:
    explicit HomeReader(const HostParts& parts) : parts_(parts) {}

    // Delivers each page to the host that asked: over the link of its request, or here by a step. On a shard.
    void read(std::vector<HomeRead> reads);
    // How many operations of the store were made so far.
    uint64_t read_count() const { return reads_.load(std::memory_order_relaxed); }

  private:
    Task<> read_run_of(std::vector<HomeRead> reads);
    Task<> read_page(HomeRead read);
    void deliver(const HomeRead& read, const std::byte* bytes, bool failed);

    const HostParts parts_;
    std::atomic<uint64_t> reads_{0};
};

}  // namespace tarn
