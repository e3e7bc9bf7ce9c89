// Times on the wire: RFC 3339, UTC, six digits, Z.
#pragma once

#include <cstdint>
#include <string_view>

namespace outbox::core {

inline constexpr std::size_t kTimeLength = 27;  // 2026-01-31T23:59:59.123456Z

// Writes exactly kTimeLength bytes. Microseconds since 1970; times outside the years 1 to 9999, which the format
// cannot say, become the nearest that it can.
void write_rfc3339(char* to, std::int64_t unix_micros);

}  // namespace outbox::core
