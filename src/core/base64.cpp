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

}  // namespace outbox::core
