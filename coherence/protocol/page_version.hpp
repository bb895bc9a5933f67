// PageVersion: how new the bytes of a page are, as (tenure, sequence).
//
// Within a tenure only its owner writes, and numbers its write-backs. The bytes that an owner hands on are the last
// version of its tenure, whatever it wrote back before.
#pragma once

#include <compare>
#include <cstdint>

#include "tiers/page.hpp"

namespace tarn::protocol {

struct PageVersion {
    Tenure tenure = 0;
    uint32_t sequence = 0;
    auto operator<=>(const PageVersion&) const = default;
};

inline constexpr uint32_t last_sequence = 0xffffffff;

// The last version before the order `tenure` took the page away from its owner.
constexpr PageVersion last_before(Tenure tenure) {
    return {tenure - 1, last_sequence};
}

// A home that starts without its claims starts again above all tenures it ever gave.
inline constexpr unsigned tenure_counter_bits = 40;
inline constexpr Tenure tenure_end = ~Tenure{0} << tenure_counter_bits;  // the last home epoch is never reached
constexpr Tenure first_tenure_of(uint32_t epoch) {
    return Tenure{epoch} << tenure_counter_bits;
}

}  // namespace tarn::protocol
