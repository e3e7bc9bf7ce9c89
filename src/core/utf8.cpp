#include "core/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace outbox::core {

namespace {

constexpr bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

}  // namespace

char32_t read_utf8(const char*& at, const char* end) {
    auto byte = [&](std::ptrdiff_t i) { return static_cast<unsigned char>(at[i]); };
    const unsigned char first = byte(0);
    if (first < 0x80) {
        ++at;
        return first;
    }
    std::ptrdiff_t length = 0;
    char32_t value = 0, smallest = 0;
    if ((first & 0xE0) == 0xC0) {
        length = 2, value = first & 0x1F, smallest = 0x80;
    } else if ((first & 0xF0) == 0xE0) {
        length = 3, value = first & 0x0F, smallest = 0x800;
    } else if ((first & 0xF8) == 0xF0) {
        length = 4, value = first & 0x07, smallest = 0x10000;
    }
    bool good = length != 0 && end - at >= length;
    for (std::ptrdiff_t i = 1; good && i < length; ++i) {
        good = is_continuation(byte(i));
        value = value << 6 | (byte(i) & 0x3F);
    }
    if (!good || value < smallest || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
        ++at;
        return kBadCodePoint;
    }
    at += length;
    return value;
}

bool is_utf8(std::string_view text) {
    const char* at = text.data();
    const char* end = at + text.size();
    while (at < end) {
        std::uint64_t eight;
        while (end - at >= 8 && (std::memcpy(&eight, at, 8), (eight & 0x8080808080808080u) == 0)) at += 8;
        if (at < end && read_utf8(at, end) == kBadCodePoint) return false;
    }
    return true;
}

void append_utf8(Buffer& out, char32_t c) {
    auto tail = [](char32_t bits) { return static_cast<char>(0x80 | (bits & 0x3F)); };
    if (c < 0x80) {
        out.append(static_cast<char>(c));
    } else if (c < 0x800) {
        char* to = out.extend(2);
        to[0] = static_cast<char>(0xC0 | c >> 6);
        to[1] = tail(c);
    } else if (c < 0x10000) {
        char* to = out.extend(3);
        to[0] = static_cast<char>(0xE0 | c >> 12);
        to[1] = tail(c >> 6);
        to[2] = tail(c);
    } else {
        char* to = out.extend(4);
        to[0] = static_cast<char>(0xF0 | c >> 18);
        to[1] = tail(c >> 12);
        to[2] = tail(c >> 6);
        to[3] = tail(c);
    }
}

}  // namespace outbox::core
