#include "frontends/volumes.hpp"

namespace tarn {

namespace {

// The size in bytes of the UTF-8 character that text begins with; 0 when it is none (cut short, overlong, surrogate).
size_t character_size(std::string_view text) {
    const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    const auto continues = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
    const unsigned first = byte(0);
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
    if (first >= 0xe0 && first <= 0xef) {
        if (first == 0xe0 && byte(1) < 0xa0) return 0;
        if (first == 0xed && byte(1) > 0x9f) return 0;
        return continues(1) && continues(2) ? 3 : 0;
    }
    if (first >= 0xf0 && first <= 0xf4) {
        if (first == 0xf0 && byte(1) < 0x90) return 0;
        if (first == 0xf4 && byte(1) > 0x8f) return 0;
        return continues(1) && continues(2) && continues(3) ? 4 : 0;
    }
    return 0;
}

// The C0 and C1 control characters and DEL: they would let a name act on a terminal or a log.
bool is_control(std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    if (character.size() == 1) return first < 0x20 || first == 0x7f;
    return character.size() == 2 && first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

bool valid_part(std::string_view part) {
    return !part.empty() && part != "." && part != "..";
}

}  // namespace

bool valid_volume_name(std::string_view name) {
    if (name.empty() || name.size() > volume_name_size_max) return false;
    for (size_t i = 0; i < name.size();) {
        const size_t size = character_size(name.substr(i));
        if (size == 0 || is_control(name.substr(i, size))) return false;
        i += size;
    }
    for (size_t start = 0;;) {
        const size_t slash = name.find('/', start);
        if (!valid_part(name.substr(start, slash - start))) return false;
        if (slash == std::string_view::npos) return true;
        start = slash + 1;
    }
}

}  // namespace tarn
