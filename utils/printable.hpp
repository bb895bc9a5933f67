// Text that others chose, made safe to show: on a terminal it must not move the cursor, change what is read first, or
// pass for something else. UTF-8 that a person can read stays as it is.
#pragma once

#include <string>
#include <string_view>

namespace tarn {

// The size in bytes of the UTF-8 character that text begins with; 0: not a valid one (cut short, overlong, surrogate).
size_t utf8_size(std::string_view text);
bool is_utf8(std::string_view text);

// The C0 and C1 control characters and DEL. character: as utf8_size says.
bool is_control(std::string_view character);

// Control characters and bytes that are not UTF-8 become \xNN; line separators, and what changes the direction of text
// or has no width, become \u{NNNN}.
std::string printable(std::string_view text);

// Columns that a terminal gives to printable text.
size_t width_of(std::string_view text);

}  // namespace tarn
