// The words every layer above utils shares: page, sector, volume, host, tenure.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tarn {

inline constexpr size_t page_size = 4096;   // the unit of coherence and caching
inline constexpr size_t sector_size = 512;  // the unit of a dirty mask
inline constexpr unsigned sectors_per_page = page_size / sector_size;

using DirtyMask = uint8_t;  // one bit per sector, bit 0 first
inline constexpr DirtyMask all_sectors = 0xff;
static_assert(sectors_per_page == 8, "DirtyMask has one bit per sector");

using VolumeId = uint32_t;  // 24 bits
using Tenure = uint64_t;    // home epoch (24 bits) · counter (40 bits)
using HostId = uint8_t;     // 0..62
using FrameId = uint32_t;   // index of a frame in its host's arena

inline constexpr VolumeId catalog_volume = 0;
inline constexpr HostId no_host = 0xff;
inline constexpr unsigned hosts_max = 63;
inline constexpr FrameId no_frame = 0xffffffff;

inline constexpr unsigned page_number_bits = 40;
inline constexpr uint64_t page_number_mask = (uint64_t{1} << page_number_bits) - 1;
inline constexpr VolumeId volume_id_max = (1u << 24) - 1;

struct PageId {
    uint64_t value = 0;

    static constexpr PageId of(VolumeId volume, uint64_t number) {
        return {uint64_t{volume} << page_number_bits | (number & page_number_mask)};
    }
    constexpr VolumeId volume() const { return static_cast<VolumeId>(value >> page_number_bits); }
    constexpr uint64_t number() const { return value & page_number_mask; }
    auto operator<=>(const PageId&) const = default;
};

// The largest size of a volume; the page numbers above it are tarn's own.
inline constexpr uint64_t volume_size_max = uint64_t{1} << 51;
// A volume's last page has its attributes: its size and times.
constexpr PageId attribute_page_of(VolumeId volume) {
    return PageId::of(volume, page_number_mask);
}
// Whether it says which volumes there are, or what one of them is.
constexpr bool describes_volumes(PageId page) {
    return page.volume() == catalog_volume || page == attribute_page_of(page.volume());
}

// The next multiple of the unit, or the value itself.
constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

// A bijective mix (the finaliser of MurmurHash3): nearby pages fall far apart.
constexpr uint64_t mix64(uint64_t x) {
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
    return x ^ (x >> 33);
}

}  // namespace tarn

template <>
struct std::hash<tarn::PageId> {
    size_t operator()(tarn::PageId id) const noexcept { return tarn::mix64(id.value); }
};
