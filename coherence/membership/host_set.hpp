// HostSet: a set of hosts as one 64-bit word.
#pragma once

#include <bit>
#include <cstdint>

#include "tiers/page.hpp"

namespace tarn {

using HostSet = uint64_t;

constexpr HostSet set_of(HostId host) {
    return host == no_host ? 0 : HostSet{1} << host;
}
// The first `count` hosts.
constexpr HostSet set_of_first(size_t count) {
    return count == 64 ? ~HostSet{0} : (HostSet{1} << count) - 1;
}
constexpr bool contains(HostSet hosts, HostId host) {
    return (hosts & set_of(host)) != 0;
}

// for_each_host(hosts, [](HostId host) { … }), in ascending order.
template <class Visitor>
constexpr void for_each_host(HostSet hosts, Visitor&& visit) {
    for (; hosts != 0; hosts &= hosts - 1) visit(static_cast<HostId>(std::countr_zero(hosts)));
}

}  // namespace tarn
