#include "core/base64.hpp"

#include <cstdint>

namespace outbox::core {

void append_base64(Buffer& out, std::string_view bytes) {
    constexpr char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char* to = out.extend((bytes.size() + 2) / 3 * 4);
    auto byte = [&](std::size_t i) { return std::uint32_t{static_cast<unsigned char>(bytes[i])}; };
    std::size_t i = 0;
    for (; i + 3 <= bytes.size(); i += 3) {
        const std::uint32_t three = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
        *to++ = alphabet[three >> 18];
        *to++ = alphabet[three >> 12 & 63];
        *to++ = alphabet[three >> 6 & 63];
        *to++ = alphabet[three & 63];
    }
    if (i == bytes.size()) return;
    const bool two = i + 2 == bytes.size();
    const std::uint32_t rest = byte(i) << 16 | (two ? byte(i + 1) << 8 : 0);
    *to++ = alphabet[rest >> 18];
    *to++ = alphabet[rest >> 12 & 63];
    *to++ = two ? alphabet[rest >> 6 & 63] : '=';
    *to++ = '=';
}

bool decode_base64(std::string_view text, std::string& out) {
    out.clear();
    int padding = 0;
    while (padding < 2 && text.ends_with('=')) {
        text.remove_suffix(1);
        padding++;
    }
    if (text.size() % 4 == 1 || (padding != 0 && (text.size() + static_cast<std::size_t>(padding)) % 4 != 0)) return false;
    std::uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
        int value;
        if (c >= 'A' && c <= 'Z') value = c - 'A';
        else if (c >= 'a' && c <= 'z') value = c - 'a' + 26;
        else if (c >= '0' && c <= '9') value = c - '0' + 52;
        else if (c == '+') value = 62;
        else if (c == '/') value = 63;
        else return false;
        bits = bits << 6 | static_cast<std::uint32_t>(value);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        out += static_cast<char>(bits >> count & 0xFF);
    }
    return (bits & ((1u << count) - 1)) == 0;  // no bits are left over
}

}  // namespace outbox::core
