#include "core/address.hpp"

#include <cstddef>

namespace outbox::core {

namespace {

struct Block {
    std::uint8_t prefix[16];
    int bits;
    std::string_view why;
};

// IANA's special-purpose registry, and an address at which a cloud's hosts answer their guests.
constexpr Block kBlocks4[] = {
    {{0}, 8, "unspecified"},
    {{10}, 8, "private"},
    {{100, 64}, 10, "shared by a provider's customers"},
    {{127}, 8, "loopback"},
    {{168, 63, 129, 16}, 32, "of a cloud's host"},
    {{169, 254}, 16, "link-local, where clouds have their metadata"},
    {{172, 16}, 12, "private"},
    {{192, 0, 0}, 24, "reserved"},
    {{192, 0, 2}, 24, "for documentation"},
    {{192, 88, 99}, 24, "reserved"},
    {{192, 168}, 16, "private"},
    {{198, 18}, 15, "for benchmarks"},
    {{198, 51, 100}, 24, "for documentation"},
    {{203, 0, 113}, 24, "for documentation"},
    {{224}, 4, "multicast"},
    {{240}, 4, "reserved"},
};

// Of IPv6 only 2000::/3 is given out; the first blocks say what the rest is.
constexpr Block kBlocks6[] = {
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 128, "unspecified"},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128, "loopback"},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96, "an IPv4 address in IPv6 form"},
    {{0}, 96, "an IPv4 address in IPv6 form"},
    {{0xfc}, 7, "private"},
    {{0xfe, 0x80}, 10, "link-local"},
    {{0xfe, 0xc0}, 10, "site-local"},
    {{0xff}, 8, "multicast"},
    {{0x20, 0x01}, 23, "reserved (Teredo and the like)"},
    {{0x20, 0x01, 0x0d, 0xb8}, 32, "for documentation"},
    {{0x3f, 0xff}, 20, "for documentation"},
};

bool is_in(const Block& block, std::span<const std::uint8_t> address) {
    for (int bit = 0; bit < block.bits; bit += 8) {
        const auto at = static_cast<std::size_t>(bit / 8);
        const int left = block.bits - bit;
        const std::uint8_t mask = left >= 8 ? 0xff : static_cast<std::uint8_t>(0xff << (8 - left));
        if ((address[at] & mask) != (block.prefix[at] & mask)) return false;
    }
    return true;
}

constexpr Block kNat64{{0x00, 0x64, 0xff, 0x9b}, 96, {}};  // the IPv4 address is in the last four bytes
constexpr Block k6to4{{0x20, 0x02}, 16, {}};               // in the four after the prefix
constexpr Block kGivenOut{{0x20}, 3, {}};

}  // namespace

std::string_view why_not_global(std::span<const std::uint8_t> address) {
    if (address.size() == 4) {
        for (const Block& block : kBlocks4) {
            if (is_in(block, address)) return block.why;
        }
        return {};
    }
    if (address.size() != 16) return "no IP address";
    if (is_in(kNat64, address)) return why_not_global(address.subspan(12, 4));
    if (is_in(k6to4, address)) return why_not_global(address.subspan(2, 4));
    for (const Block& block : kBlocks6) {
        if (is_in(block, address)) return block.why;
    }
    return is_in(kGivenOut, address) ? std::string_view() : "reserved";
}

}  // namespace outbox::core
