// Event ids: UUIDs, and the time-ordered ones (version 7, RFC 9562) that events get by default.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/event.hpp"

namespace outbox::core {

inline constexpr std::size_t kUuidLength = 36;

// Writes exactly kUuidLength bytes: lower case, with hyphens.
void write_uuid(char* to, const EventId& id);

// Reads the form that write_uuid writes, in either case; false for anything else.
bool parse_uuid(std::string_view text, EventId& id);

// 62 of the bits are used. They come from the caller, who has a strong source at hand.
using RandomBytes = std::array<std::uint8_t, 8>;

// The time of a version 7 UUID, in 1/4096 ms: 48 bits of milliseconds and, in rand_a, the fraction below them (RFC 9562,
// section 6.2, method 3).
std::uint64_t uuid7_ticks(std::int64_t unix_micros);
EventId make_uuid7(std::uint64_t ticks, const RandomBytes& random);

// Ids of one backend grow strictly, also within a microsecond and when the clock is set back.
class Uuid7Source {
public:
    EventId next(std::int64_t unix_micros, const RandomBytes& random) {
        const std::uint64_t now = uuid7_ticks(unix_micros);
        last_ = now > last_ ? now : last_ + 1;
        return make_uuid7(last_, random);
    }

private:
    std::uint64_t last_ = 0;
};

}  // namespace outbox::core
