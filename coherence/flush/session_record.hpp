// SessionRecord: what a session must not forget when its process is killed, for a client that goes on with it all the
// same: a block device of the kernel, or a client that connects to the next process. Else it could read back in time,
// or flush what is lost, without an error (D4).
//
// It lies in memory that outlives the process. All zeros is the record of a session that has not begun.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tiers/page.hpp"

namespace tarn {

struct SessionRecord {
    std::atomic<bool> flush_failed;   // for good
    std::atomic<uint64_t> pages_end;  // above every page that it has written
    // By home: its verifier before the first write since the last flush, 0: there was none.
    std::array<std::atomic<uint64_t>, hosts_max> noted;
    // By home: one more than the generation up to which its losses lie before the session; 0: it has used none of its
    // pages.
    std::array<std::atomic<uint32_t>, hosts_max> losses_before;
};

}  // namespace tarn
