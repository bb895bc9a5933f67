#include "frontends/volumes/tiers.hpp"

#include <algorithm>
#include <optional>

namespace tarn {

namespace {

// Another host has newer bytes than this one, their home.
bool is_with_another(const protocol::Home& home, PageId page, HostId self) {
    const protocol::Claim* const claim = home.find(page);
    return claim && !claim->home_has_bytes() && claim->owner != self;
}

// Looks pages up one after the other. Neighbours mostly share a stripe, whose latch is then taken once for all of them.
class Lookup {
  public:
    explicit Lookup(Cache& cache) : cache_(cache) {}

    // is_hole: whether its home said so.
    Tier tier_of(PageId page, bool is_hole) {
        if (cache_.pages().holds(page)) return Tier::dram;
        if (cache_.home_of(page) == cache_.self()) {
            if (is_with_another(latched(page).home(), page, cache_.self())) return Tier::remote;
            if (cache_.home_store().frames().index().find_exactly(page)) return Tier::dram;
        }
        return is_hole ? Tier::hole : Tier::nvme;
    }

  private:
    const Stripes::Turn& latched(PageId page) {
        if (const unsigned stripe = Stripes::index_of(page); !turn_ || stripe != stripe_) {
            turn_.reset();  // one latch at a time
            turn_.emplace(cache_.stripes(), page);
            stripe_ = stripe;
        }
        return *turn_;
    }

    Cache& cache_;
    std::optional<Stripes::Turn> turn_;
    unsigned stripe_ = 0;
};

}  // namespace

std::vector<TierExtent> tiers_of(Cache& cache, VolumeId volume, std::span<const Extent> extents) {
    std::vector<TierExtent> tiers;
    Lookup lookup(cache);
    uint64_t pages_left = tiers_at_once / page_size;
    for (const Extent& extent : extents) {
        const uint64_t end = extent.offset_bytes + extent.size_bytes;
        for (uint64_t at = extent.offset_bytes; at < end;) {
            if (pages_left-- == 0) return tiers;
            const uint64_t number = at / page_size;
            const uint64_t until = std::min(end, (number + 1) * page_size);
            const Tier tier = lookup.tier_of(PageId::of(volume, number), extent.hole);
            if (tiers.empty() || tiers.back().tier != tier)
                tiers.push_back({.offset_bytes = at, .size_bytes = 0, .tier = tier});
            tiers.back().size_bytes += until - at;
            at = until;
        }
    }
    return tiers;
}

}  // namespace tarn
