#include "utils/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

namespace tarn {

namespace {

struct Range {
    uint32_t first;
    uint32_t last;
};

// Unicode's bidirectional controls, line and paragraph separators, and characters without a width that hide in a name.
constexpr std::array<Range, 12> deceptive = {{{0xad, 0xad},
                                              {0x61c, 0x61c},
                                              {0x115f, 0x1160},
                                              {0x180e, 0x180e},
                                              {0x200b, 0x200f},
                                              {0x2028, 0x202e},
                                              {0x2060, 0x206f},
                                              {0x3164, 0x3164},
                                              {0xfeff, 0xfeff},
                                              {0xfff9, 0xfffb},
                                              {0x1d173, 0x1d17a},
                                              {0xe0000, 0xe007f}}};
constexpr std::array<Range, 2> without_width = {{{0x300, 0x36f}, {0xfe00, 0xfe0f}}};
constexpr std::array<Range, 8> double_width = {{{0x1100, 0x115f},
                                                {0x2e80, 0xa4cf},
                                                {0xac00, 0xd7a3},
                                                {0xf900, 0xfaff},
                                                {0xfe30, 0xfe6f},
                                                {0xff00, 0xff60},
                                                {0x1f300, 0x1faff},
                                                {0x20000, 0x3fffd}}};

bool is_in(uint32_t code, std::span<const Range> ranges) {
    return std::ranges::any_of(ranges, [code](Range range) { return code >= range.first && code <= range.last; });
}

uint32_t code_of(std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    if (character.size() == 1) return first;
    uint32_t code = first & (0xffu >> (character.size() + 1));
    for (const char next : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(next) & 0x3f);
    return code;
}

}  // namespace

size_t utf8_size(std::string_view text) {
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

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const size_t size = utf8_size(text);
        if (size == 0) return false;
        text.remove_prefix(size);
    }
    return true;
}

bool is_control(std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    if (character.size() == 1) return first < 0x20 || first == 0x7f;
    return character.size() == 2 && first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

std::string printable(std::string_view text) {
    std::string safe;
    while (!text.empty()) {
        const size_t size = utf8_size(text);
        const std::string_view character = text.substr(0, std::max<size_t>(size, 1));
        if (size == 0 || is_control(character)) {
            for (const char byte : character) safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
        } else if (is_in(code_of(character), deceptive)) {
            safe += fmt::format("\\u{{{:04x}}}", code_of(character));
        } else {
            safe += character;
        }
        text.remove_prefix(character.size());
    }
    return safe;
}

size_t width_of(std::string_view text) {
    size_t width = 0;
    while (!text.empty()) {
        const std::string_view character = text.substr(0, std::max<size_t>(utf8_size(text), 1));
        const uint32_t code = code_of(character);
        width += is_in(code, double_width) ? 2 : is_in(code, without_width) ? 0 : 1;
        text.remove_prefix(character.size());
    }
    return width;
}

}  // namespace tarn
