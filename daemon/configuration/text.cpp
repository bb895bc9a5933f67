#include "daemon/configuration/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <vector>

namespace tarn {

namespace {

struct Unit {
    std::string_view name;
    uint64_t size_bytes;
};
constexpr std::array<Unit, 6> units = {{{"PiB", uint64_t{1} << 50},
                                        {"TiB", uint64_t{1} << 40},
                                        {"GiB", uint64_t{1} << 30},
                                        {"MiB", uint64_t{1} << 20},
                                        {"KiB", uint64_t{1} << 10},
                                        {"B", 1}}};

constexpr size_t decimals_max = 18;  // times the largest unit they fit 128 bits

// "GiB", "Gi" and "G" are 2^30 bytes, "GB" is 10^9: as disks are sold, and as most tools take the letter alone.
std::optional<uint64_t> unit_size(std::string_view name) {
    constexpr std::string_view letters = "KMGTP";
    if (name == "B" || name == "b") return 1;
    if (name.empty()) return std::nullopt;
    const auto upper = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; };
    const size_t power = letters.find(upper(name[0]));
    if (power == std::string_view::npos) return std::nullopt;
    const std::string_view rest = name.substr(1);
    const bool decimal = rest.size() == 1 && upper(rest[0]) == 'B';
    const bool binary =
        !rest.empty() && rest.size() <= 2 && upper(rest[0]) == 'I' && upper(rest.back()) == "IB"[rest.size() - 1];
    if (!rest.empty() && !decimal && !binary) return std::nullopt;
    uint64_t size_bytes = 1;
    for (size_t i = 0; i <= power; ++i) size_bytes *= decimal ? 1000 : 1024;
    return size_bytes;
}

size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
        }
    }
    return row.back();
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
    constexpr const char* not_a_size = "not a size such as \"64GiB\", \"1.5G\" or \"500MB\"";
    constexpr const char* too_large = "larger than 2^64 bytes";
    uint64_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error == std::errc::result_out_of_range) return fail(Errc::invalid, 0, too_large);
    if (error != std::errc{}) return fail(Errc::invalid, 0, not_a_size);
    std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
    std::string_view decimals;
    if (rest.starts_with('.')) {
        rest.remove_prefix(1);
        decimals = rest.substr(0, std::min(rest.find_first_not_of("0123456789"), rest.size()));
        rest.remove_prefix(decimals.size());
        if (decimals.empty()) return fail(Errc::invalid, 0, not_a_size);
        if (decimals.size() > decimals_max)
            return fail(Errc::invalid, 0, "a size has at most 18 decimals, such as \"1.5G\"");
    }
    if (rest.starts_with(' ')) rest.remove_prefix(1);
    const std::optional<uint64_t> unit = rest.empty() && text.back() != ' ' ? 1 : unit_size(rest);
    if (!unit)
        return fail(Errc::invalid, 0,
                    "unknown unit; use KiB, MiB, GiB, TiB or PiB (1024), or kB, MB, GB, TB or PB (1000)");
    unsigned __int128 size_bytes = static_cast<unsigned __int128>(count) * *unit;
    if (!decimals.empty()) {
        uint64_t parts = 0;
        std::from_chars(decimals.data(), decimals.data() + decimals.size(), parts);
        uint64_t scale = 1;
        for (size_t i = 0; i < decimals.size(); ++i) scale *= 10;
        size_bytes += (static_cast<unsigned __int128>(parts) * *unit + scale - 1) / scale;
    }
    if (size_bytes > std::numeric_limits<uint64_t>::max()) return fail(Errc::invalid, 0, too_large);
    return static_cast<uint64_t>(size_bytes);
}

Result<uint64_t> parse_duration(std::string_view text) {
    constexpr std::array<std::pair<std::string_view, uint64_t>, 6> time_units{
        {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"min", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}}};
    constexpr uint64_t duration_max_ms = uint64_t{36500} * 86'400'000;
    uint64_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    const std::string_view name = text.substr(static_cast<size_t>(end - text.data()));
    const auto* const unit = std::ranges::find(time_units, name, &std::pair<std::string_view, uint64_t>::first);
    if (error != std::errc{} || unit == time_units.end() || count == 0 || count > duration_max_ms / unit->second)
        return fail(Errc::invalid, 0, "not a time such as \"500ms\", \"30s\", \"2min\", \"12h\" or \"7d\"");
    return count * unit->second;
}

std::string format_size(uint64_t size_bytes) {
    for (const Unit& unit : units)
        if (size_bytes >= unit.size_bytes && size_bytes % unit.size_bytes == 0)
            return fmt::format("{}{}", size_bytes / unit.size_bytes, unit.name);
    return "0B";
}

std::string format_size_roughly(uint64_t size_bytes) {
    for (const Unit& unit : units) {
        if (size_bytes < unit.size_bytes || unit.size_bytes == 1) continue;
        const double count = static_cast<double>(size_bytes) / static_cast<double>(unit.size_bytes);
        return fmt::format("{:.{}f} {}", count, count < 10 && size_bytes % unit.size_bytes ? 1 : 0, unit.name);
    }
    return fmt::format("{} B", size_bytes);
}

Result<Address> parse_address(std::string_view text) {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return fail(Errc::invalid, 0, "no port; write HOST:PORT");
    std::string_view host = text.substr(0, colon);
    const std::string_view digits = text.substr(colon + 1);
    if (host.starts_with('[') && host.ends_with(']'))
        host = host.substr(1, host.size() - 2);
    else if (host.contains(':'))
        return fail(Errc::invalid, 0, "an IPv6 address needs brackets: [ADDRESS]:PORT");
    if (host.empty()) return fail(Errc::invalid, 0, "no host; write HOST:PORT");
    const bool printable =
        std::ranges::all_of(host, [](char c) { return c > ' ' && c < 0x7f && c != '[' && c != ']'; });
    if (!printable || host.size() > 253) return fail(Errc::invalid, 0, "not a host name or address");
    Address address{.host = std::string(host)};
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
    if (error != std::errc{} || end != digits.data() + digits.size() || address.port == 0)
        return fail(Errc::invalid, 0, "the port is not a number from 1 to 65535");
    return address;
}

std::string format_address(const Address& address) {
    if (address.host.contains(':')) return fmt::format("[{}]:{}", address.host, address.port);
    return fmt::format("{}:{}", address.host, address.port);
}

std::optional<uint8_t> parse_hex(std::string_view digits) {
    uint8_t byte = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), byte, 16);
    return error == std::errc{} && digits.size() == 2 && end == digits.end() ? std::optional(byte) : std::nullopt;
}

std::optional<std::string_view> nearest_name(std::string_view text, std::span<const std::string_view> candidates) {
    std::optional<std::string_view> nearest;
    // Half of the letters may be wrong, and no more than three: beyond that a suggestion only misleads.
    size_t distance_max = std::min<size_t>(3, (text.size() + 1) / 2);
    for (const std::string_view candidate : candidates) {
        const size_t distance = edit_distance(text, candidate);
        if (distance > distance_max || (nearest && distance == distance_max)) continue;
        nearest = candidate;
        distance_max = distance;
    }
    return nearest;
}

}  // namespace tarn
