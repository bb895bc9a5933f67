// Offers: the transports, beside the one by which two hosts have met, over which a host can be reached.
//
//   both            → u16: size in bytes; then for each offer u8: TransportKind, u8: size of the text, the text
//   connecting host → one byte: Decision
//
// Kinds that a host does not know it skips, so that hosts of two versions can talk. Used by Handshake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "coherence/fabric/transport/transport.hpp"
#include "utils/result.hpp"

namespace tarn {

struct Offer {
    TransportKind kind{};
    std::string text;  // of Transport::offer()
    bool operator==(const Offer&) const = default;
};
inline constexpr size_t offers_size_max = 1024;
enum class Decision : uint8_t { stays = 1, has_moved = 2 };

// Without the size.
std::string encode(std::span<const Offer> offers);
// Errors: protocol.
Result<std::vector<Offer>> decode_offers(std::string_view bytes);

}  // namespace tarn
