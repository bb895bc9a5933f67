#include "coherence/fabric/link/offers.hpp"

#include "utils/assert.hpp"

namespace tarn {

std::string encode(std::span<const Offer> offers) {
    std::string bytes;
    for (const Offer& each : offers) {
        TARN_ASSERT(each.text.size() <= Transport::offer_size_max);
        bytes += static_cast<char>(each.kind);
        bytes += static_cast<char>(each.text.size());
        bytes += each.text;
    }
    TARN_ASSERT(bytes.size() <= offers_size_max);
    return bytes;
}

Result<std::vector<Offer>> decode_offers(std::string_view bytes) {
    std::vector<Offer> offers;
    while (!bytes.empty()) {
        const size_t size = bytes.size() < 2 ? 0 : static_cast<uint8_t>(bytes[1]);
        if (bytes.size() < 2 + size) return fail(Errc::protocol, 0, "fabric.handshake: an offer that is cut off");
        const auto kind = static_cast<TransportKind>(bytes[0]);
        if (kind == TransportKind::shm) offers.push_back({.kind = kind, .text = std::string(bytes.substr(2, size))});
        bytes.remove_prefix(2 + size);
    }
    return offers;
}

}  // namespace tarn
