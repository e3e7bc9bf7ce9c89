// Which lane an event belongs to. The function is part of what is stored: change it, and a key's events already on their
// way in one lane are overtaken by later ones in another. So it is fixed for ever, and tests/unit/core_keyhash.cpp holds
// it to its values.
//
// FNV-1a (64 bits) over the key's UTF-8 bytes, then the finaliser of MurmurHash3: FNV alone leaves the low bits of
// similar keys alike. Nothing here depends on the machine's byte order or on the C++ library.
#pragma once

#include <cstdint>

#include "core/event.hpp"

namespace outbox::core {

constexpr std::uint64_t mix_bits(std::uint64_t x) {
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCDu;
    x ^= x >> 33;
    x *= 0xC4CEB9FE1A85EC53u;
    x ^= x >> 33;
    return x;
}

constexpr std::uint64_t key_hash(std::string_view key) {
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    return mix_bits(hash);
}

// 0 to lanes - 1. An event without a key (not: with an empty one) goes by its id.
constexpr int lane_of(Bytes key, std::int64_t event_id, int lanes) {
    const std::uint64_t hash = is_null(key) ? mix_bits(static_cast<std::uint64_t>(event_id)) : key_hash(key);
    return static_cast<int>(hash % static_cast<std::uint64_t>(lanes));
}

}  // namespace outbox::core
