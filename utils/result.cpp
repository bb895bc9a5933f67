#include "utils/result.hpp"

namespace tarn {

const char* to_string(Errc code) noexcept {
    switch (code) {
        case Errc::io: return "input/output error";
        case Errc::no_space: return "no space";
        case Errc::not_found: return "not found";
        case Errc::exists: return "exists already";
        case Errc::busy: return "in use";
        case Errc::invalid: return "invalid";
        case Errc::unavailable: return "unavailable";
        case Errc::refused: return "refused";
        case Errc::protocol: return "protocol violation";
        case Errc::corrupt: return "corrupt";
        case Errc::closed: return "closed";
        case Errc::cancelled: return "cancelled";
        case Errc::unsupported: return "unsupported";
    }
    return "unknown";
}

}  // namespace tarn
