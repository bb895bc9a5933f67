// Membership as the model of threads has it: host 0 of two, host 1 is every page's home, and its store may fail.
#pragma once

#include "coherence/membership/host_set.hpp"
#include "utils/atomic.hpp"

namespace tarn {

class Membership {
  public:
    static HostId self() { return 0; }
    static HostId home_of(PageId) { return 1; }
    static bool any_store_failed() { return false; }
    bool refuses_writes_of(PageId) const { return failed_.load(); }
    void fail_store() { failed_.store(true); }

  private:
    Atomic<bool> failed_{false};
};

}  // namespace tarn
