#include "core/uuid.hpp"

#include "core/hex.hpp"

namespace outbox::core {

namespace {

// 8-4-4-4-12: a hyphen stands before these bytes.
constexpr bool hyphen_before(std::size_t byte) { return byte == 4 || byte == 6 || byte == 8 || byte == 10; }

}  // namespace

void write_uuid(char* to, const EventId& id) {
    constexpr char digits[] = "0123456789abcdef";
    for (std::size_t i = 0; i < id.size(); ++i) {
        if (hyphen_before(i)) *to++ = '-';
        *to++ = digits[id[i] >> 4];
        *to++ = digits[id[i] & 15];
    }
}

bool parse_uuid(std::string_view text, EventId& id) {
    if (text.size() != kUuidLength) return false;
    const char* at = text.data();
    for (std::size_t i = 0; i < id.size(); ++i) {
        if (hyphen_before(i) && *at++ != '-') return false;
        const int high = hex_value(*at++), low = hex_value(*at++);
        if (high < 0 || low < 0) return false;
        id[i] = static_cast<std::uint8_t>(high << 4 | low);
    }
    return true;
}

std::uint64_t uuid7_ticks(std::int64_t unix_micros) {
    constexpr std::uint64_t last_ms = (std::uint64_t{1} << 48) - 1;
    const std::uint64_t micros = unix_micros < 0 ? 0 : static_cast<std::uint64_t>(unix_micros);
    const std::uint64_t ms = micros / 1000 < last_ms ? micros / 1000 : last_ms;
    return ms << 12 | micros % 1000 * 4096 / 1000;
}

EventId make_uuid7(std::uint64_t ticks, const RandomBytes& random) {
    EventId id{};
    const std::uint64_t ms = ticks >> 12;
    for (std::size_t i = 0; i < 6; ++i) id[i] = static_cast<std::uint8_t>(ms >> (40 - 8 * i));
    id[6] = static_cast<std::uint8_t>(0x70 | (ticks >> 8 & 0x0F));
    id[7] = static_cast<std::uint8_t>(ticks);
    for (std::size_t i = 0; i < random.size(); ++i) id[8 + i] = random[i];
    id[8] = static_cast<std::uint8_t>(0x80 | (id[8] & 0x3F));
    return id;
}

}  // namespace outbox::core
