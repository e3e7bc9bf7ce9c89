// Which network addresses a sink may connect to: those of the global Internet, unless its owner says otherwise.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace outbox::core {

// Why an address (4 bytes: IPv4, 16: IPv6, in network order) is no global unicast address, in a word or two: "loopback",
// "private", "link-local (cloud metadata)". Empty: it is one.
std::string_view why_not_global(std::span<const std::uint8_t> address);

}  // namespace outbox::core
