#include "frontends/nbd/admission.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace tarn::nbd {

namespace {

constexpr std::array<uint8_t, 12> mapped_ipv4_prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

// Whether the bits from the first of these on are all zero.
bool is_zero_from(std::span<const uint8_t> bytes, unsigned first_bit) {
    for (unsigned bit = first_bit; bit < bytes.size() * 8; ++bit)
        if ((bytes[bit / 8] >> (7 - bit % 8) & 1) != 0) return false;
    return true;
}

}  // namespace

Result<Network> Network::parse(std::string_view text) {
    const size_t slash = text.find('/');
    const std::string address(text.substr(0, slash));
    Network network;
    network.numbers_.is_ipv4 = ::inet_pton(AF_INET, address.c_str(), network.numbers_.bytes.data()) == 1;
    if (!network.numbers_.is_ipv4 && ::inet_pton(AF_INET6, address.c_str(), network.numbers_.bytes.data()) != 1)
        return fail(Errc::invalid, 0, "not a network such as \"10.0.0.0/8\" or \"fd00::/8\"");
    const std::span<const uint8_t> bytes = std::span(network.numbers_.bytes).first(network.numbers_.is_ipv4 ? 4 : 16);
    if (!network.numbers_.is_ipv4 && std::ranges::equal(bytes.first(12), mapped_ipv4_prefix))
        return fail(Errc::invalid, 0, "an IPv4 address in IPv6 form; write it as \"10.0.0.0/8\"");
    const auto bits = static_cast<unsigned>(bytes.size() * 8);
    network.prefix_bits_ = bits;
    if (slash != std::string_view::npos) {
        const std::string digits(text.substr(slash + 1));
        const char* const end = digits.data() + digits.size();
        const auto [parsed, error] = std::from_chars(digits.data(), end, network.prefix_bits_);
        if (error != std::errc() || parsed != end || network.prefix_bits_ > bits)
            return fail(Errc::invalid, 0, "what follows the slash is not the length of a prefix");
    }
    if (!is_zero_from(bytes, network.prefix_bits_))
        return fail(Errc::invalid, 0, "the address has bits beyond the prefix; which of the two is meant?");
    return network;
}

std::optional<Network::Numbers> Network::numbers_of(const sockaddr_storage& address) {
    Numbers numbers;
    if (address.ss_family == AF_INET) {
        numbers.is_ipv4 = true;
        std::memcpy(numbers.bytes.data(), &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
        return numbers;
    }
    if (address.ss_family != AF_INET6) return std::nullopt;
    std::memcpy(numbers.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 16);
    if (!std::ranges::equal(std::span(numbers.bytes).first(12), mapped_ipv4_prefix)) return numbers;
    numbers.is_ipv4 = true;
    std::copy(numbers.bytes.begin() + 12, numbers.bytes.end(), numbers.bytes.begin());
    return numbers;
}

bool Network::contains(const sockaddr_storage& address) const {
    const std::optional<Numbers> numbers = numbers_of(address);
    if (!numbers || numbers->is_ipv4 != numbers_.is_ipv4) return false;
    Bytes differences{};
    const unsigned whole_bytes = (prefix_bits_ + 7) / 8;
    for (unsigned i = 0; i < whole_bytes; ++i) differences[i] = numbers->bytes[i] ^ numbers_.bytes[i];
    if (prefix_bits_ % 8 != 0) differences[whole_bytes - 1] >>= 8 - prefix_bits_ % 8;
    return std::ranges::all_of(differences, [](uint8_t byte) { return byte == 0; });
}

std::optional<std::string> AccessLists::mistake_in(std::string_view identity) {
    for (const std::string_view kind : {"psk:", "cert:"})
        if (identity.starts_with(kind) && identity.size() > kind.size()) return std::nullopt;
    return "write \"psk:USER\" or \"cert:NAME\" for each client that may use the volume";
}

bool AccessLists::allows(const std::string& volume, std::span<const std::string> identities) const {
    const auto list = lists_.find(volume);
    if (list == lists_.end()) return true;
    return std::ranges::any_of(identities, [&](const std::string& each) { return list->second.contains(each); });
}

bool Admission::admits(const sockaddr_storage& address) const {
    return networks.empty() ||
           std::ranges::any_of(networks, [&](const Network& each) { return each.contains(address); });
}

}  // namespace tarn::nbd
