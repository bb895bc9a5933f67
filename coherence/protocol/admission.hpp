// Admission: what a link accepts from its peer, an authenticated host that may still be wrong, old or hostile.
//
// Messages are checked in three places. validate() sees only the message; admit() also knows the link and the home of
// each page; and where only the state of a page can tell, a handler gives the action refuse_peer. Each names the fault,
// and the executor ends the link with that reason. Merely late or stale messages are no fault: handlers ignore them.
#pragma once

#include <cstdint>

#include "coherence/membership/host_set.hpp"
#include "coherence/protocol/message.hpp"
#include "utils/result.hpp"

namespace tarn::protocol {

struct Link {
    HostId self = no_host;
    HostId peer = no_host;
    Process process;          // the peer's, of this link
    HostSet hosts = 0;        // of the cluster
    uint32_t view_epoch = 0;  // ours
    uint32_t map_epoch = 0;   // of our RangeMap
};

// Checks a validated message. home: the page's, by our RangeMap; unused for flush messages. page_count: the volume's,
// by our catalog; no_volume: no such volume, any_page: not known here.
inline constexpr uint64_t no_volume = 0;
inline constexpr uint64_t any_page = ~uint64_t{0};
Result<> admit(const Message& message, const Link& link, HostId home, uint64_t page_count = any_page);

}  // namespace tarn::protocol
