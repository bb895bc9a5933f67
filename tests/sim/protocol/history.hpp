// History: what clients saw, and when; checks that one order of all operations explains it (linearizability, C2).
//
// It knows nothing of the order in which the simulator ran the operations: only when each was invoked, when it was
// answered, which sectors it wrote, and what it read in them. Each sector is a register, and each write has its own
// value, so the zones of Gibbons and Korach (SIAM J. Comput. 26, 1997) decide it exactly: all operations about one
// value must fit into one moment, or around one span of time, that excludes those of all other values. Truth checks
// that a page's sectors change together.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tiers/page.hpp"

namespace tarn::sim {

class History {
  public:
    struct Operation {
        uint64_t invoked = 0;
        uint64_t answered = 0;
        DirtyMask written = 0;  // 0: a read of the whole page
        uint64_t value = 0;     // of the write
        std::array<uint64_t, sectors_per_page> found{};
    };

    void add(PageId page, const Operation& operation);
    // A crash took answered writes, as it may: no order explains this page.
    void forget(PageId page);
    // Returns the violation, or nothing.
    std::string check() const;

  private:
    struct Page {
        bool forgotten = false;
        std::vector<Operation> operations;
    };
    static std::string check_register(const Page& page, unsigned sector);

    std::map<PageId, Page> pages_;
};

}  // namespace tarn::sim
