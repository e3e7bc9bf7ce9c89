// UTF-8, as far as checks and wire formats need it.
#pragma once

#include <string_view>

#include "core/buffer.hpp"

namespace outbox::core {

inline constexpr char32_t kBadCodePoint = 0xFFFFFFFF;

// Reads one code point at `at` (which must be before `end`) and moves past it. For bytes that are not UTF-8 (overlong
// forms, surrogates and values above U+10FFFF included) it returns kBadCodePoint and moves one byte.
char32_t read_utf8(const char*& at, const char* end);

bool is_utf8(std::string_view text);

void append_utf8(Buffer& out, char32_t code_point);

// C0, DEL and C1.
constexpr bool is_control(char32_t c) { return c < 0x20 || (c >= 0x7F && c <= 0x9F); }

// Not a control character, a line or paragraph separator, a byte order mark or a noncharacter. A space is printable.
constexpr bool is_printable(char32_t c) {
    return !is_control(c) && c != 0x2028 && c != 0x2029 && c != 0xFEFF && (c & 0xFFFE) != 0xFFFE &&
           !(c >= 0xFDD0 && c <= 0xFDEF) && c <= 0x10FFFF;
}

}  // namespace outbox::core
