// RangeMap: which host is the home of a page. The only place that knows how ranges are placed.
//
// Immutable. A new placement is a new map with a higher epoch, which Membership publishes in place of the old one; the
// epoch travels in every message, so that a host with an old map is refused instead of misled. Ranges of a volume lie
// round-robin on the hosts, each volume starting at another host; tables of single ranges (moves, range owners) come
// with the control plane and change only home_of().
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "coherence/membership/host_set.hpp"
#include "tiers/page.hpp"

namespace tarn {

inline constexpr uint64_t range_size_bytes_default = uint64_t{64} << 20;
inline constexpr uint64_t pages_per_range_default = range_size_bytes_default / page_size;

class RangeMap {
  public:
    // hosts: in the order of the configuration, the same on every host; at least one, at most hosts_max.
    // pages_per_range: a power of two.
    RangeMap(uint32_t epoch, std::span<const HostId> hosts, uint64_t pages_per_range = pages_per_range_default);

    HostId home_of(PageId page) const {
        return hosts_[(page.volume() + (page.number() >> pages_per_range_bits_)) % host_count_];
    }

    // Every host that is the home of one of these pages of the volume, such as the homes that a flush must ask.
    HostSet homes_of(VolumeId volume, uint64_t first_page, uint64_t page_count) const;
    HostSet homes_of(VolumeId volume, uint64_t page_count) const { return homes_of(volume, 0, page_count); }

    uint32_t epoch() const { return epoch_; }
    uint64_t pages_per_range() const { return uint64_t{1} << pages_per_range_bits_; }

  private:
    uint32_t epoch_;
    uint32_t host_count_;
    unsigned pages_per_range_bits_;
    std::array<HostId, hosts_max> hosts_{};
};

}  // namespace tarn
