#include "coherence/membership/range_map.hpp"

#include <algorithm>
#include <bit>

#include "utils/assert.hpp"

namespace tarn {

RangeMap::RangeMap(uint32_t epoch, std::span<const HostId> hosts, uint64_t pages_per_range)
    : epoch_(epoch),
      host_count_(static_cast<uint32_t>(hosts.size())),
      pages_per_range_bits_(static_cast<unsigned>(std::countr_zero(pages_per_range))) {
    TARN_ASSERT(!hosts.empty() && hosts.size() <= hosts_max);
    TARN_ASSERT(std::has_single_bit(pages_per_range));
    for (const HostId host : hosts) TARN_ASSERT(host < hosts_max);
    std::ranges::copy(hosts, hosts_.begin());
}

HostSet RangeMap::homes_of(VolumeId volume, uint64_t first_page, uint64_t page_count) const {
    // Round-robin: after host_count_ ranges every host has been named.
    const uint64_t first = first_page >> pages_per_range_bits_;
    const uint64_t end = (first_page + page_count + pages_per_range() - 1) >> pages_per_range_bits_;
    HostSet homes = 0;
    for (uint64_t range = first; page_count > 0 && range < std::min<uint64_t>(end, first + host_count_); ++range)
        homes |= set_of(home_of(PageId::of(volume, range << pages_per_range_bits_)));
    return homes;
}

}  // namespace tarn
