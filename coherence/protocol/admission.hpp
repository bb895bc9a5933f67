// Admission: what a link takes from its peer, an authenticated host that may yet be wrong, old or hostile.
//
// Three checks lie before the handlers. validate() knows the message alone; admit() also knows the link it came over
// and who is whose home; and where only the state of a page tells, a handler gives the action refuse_peer. Each names
// what was wrong, and the executor ends the link with that reason. What is merely late or stale is no offence: the
// handlers ignore it.
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

// A validated message. home: of its page, by our RangeMap; for flush messages unused. page_count: of its volume by our
// catalog, no_volume if there is none, any_page if that is not known here.
inline constexpr uint64_t no_volume = 0;
inline constexpr uint64_t any_page = ~uint64_t{0};
Result<> admit(const Message& message, const Link& link, HostId home, uint64_t page_count = any_page);

}  // namespace tarn::protocol
