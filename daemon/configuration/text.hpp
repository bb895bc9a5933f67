// Text as people type it: sizes, addresses, and the name they may have meant.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "utils/result.hpp"

namespace tarn {

// "4096", "64KiB", "1.5GiB", "1G" (as GiB), "500MB" (10^6): bytes without a unit, otherwise B, KiB to PiB or their
// first letter or two, or kB to PB; in any case, with at most 18 decimals, rounded up to a byte. Errors: invalid; the
// text says what is wrong with it.
Result<uint64_t> parse_size(std::string_view text);
// The shortest exact form: "2GiB", "1536MiB", "4097B".
std::string format_size(uint64_t size_bytes);
// For a table: at most three digits, "1.5 GiB".
std::string format_size_roughly(uint64_t size_bytes);

// "500ms", "90s", "2min", "12h" or "7d", in milliseconds. Errors: invalid.
Result<uint64_t> parse_duration(std::string_view text);

struct Address {
    std::string host;  // a name or a number; IPv6 without its brackets
    uint16_t port = 0;
    bool operator==(const Address&) const = default;
};
// "10.0.0.1:7420", "node-a:7420", "[::1]:7420". Errors: invalid.
Result<Address> parse_address(std::string_view text);
std::string format_address(const Address& address);

// The byte that two hexadecimal digits stand for.
std::optional<uint8_t> parse_hex(std::string_view digits);

// The candidate nearest to the text, as the one that was most likely meant; none when all are too far from it.
std::optional<std::string_view> nearest_name(std::string_view text, std::span<const std::string_view> candidates);

}  // namespace tarn
