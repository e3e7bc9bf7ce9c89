// Which addresses a sink may connect to.
#include "core/address.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <string>

using outbox::core::why_not_global;

namespace {

std::string why(const std::string& text) {
    std::uint8_t bytes[16];
    const bool six = text.find(':') != std::string::npos;
    EXPECT_EQ(inet_pton(six ? AF_INET6 : AF_INET, text.c_str(), bytes), 1) << text;
    return std::string(why_not_global({bytes, six ? 16u : 4u}));
}

std::string four(int a, int b, int c, int d) {
    return std::to_string(a) + "." + std::to_string(b) + "." + std::to_string(c) + "." + std::to_string(d);
}

}  // namespace

TEST(Address, GlobalUnicastIsLetThrough) {
    for (const char* text : {"8.8.8.8", "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1",
                             "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0",
                             "223.255.255.255", "168.63.129.15", "2600::1", "2a00:1450:4001:80b::200e", "2001:4860:4860::8888", "2001:200::1",
                             "3ffe::1", "64:ff9b::8.8.8.8", "2002:808:808::1"})
        EXPECT_EQ(why(text), "") << text;
}

TEST(Address, EverythingElseIsNot) {
    for (const std::string& text :
         {std::string("0.0.0.0"), std::string("0.1.2.3"), four(10, 0, 0, 1), four(10, 255, 255, 255), std::string("100.64.0.1"), std::string("100.127.255.255"),
          std::string("100.100.100.200"), std::string("127.0.0.1"), std::string("127.255.255.255"), std::string("169.254.169.254"), four(172, 16, 0, 1),
          four(172, 31, 255, 255), std::string("192.0.0.1"), std::string("192.0.2.1"), std::string("192.88.99.1"), four(192, 168, 0, 1),
          std::string("198.18.0.1"), std::string("198.19.255.255"), std::string("198.51.100.7"), std::string("203.0.113.7"), std::string("224.0.0.1"),
          std::string("239.255.255.255"), std::string("240.0.0.1"), std::string("255.255.255.255"), std::string("168.63.129.16")})
        EXPECT_NE(why(text), "") << text;
    for (const char* text : {"::", "::1", "::2", "::8.8.8.8", "::ffff:8.8.8.8", "::ffff:127.0.0.1", "fc00::1", "fd00:ec2::254", "fe80::1", "febf::1", "fec0::1",
                             "ff02::1", "2001::1", "2001:0:4136:e378::1", "2001:1ff::1", "2001:db8::1", "3fff::1", "3fff:fff::1", "4000::1", "5f00::1",
                             "100::1", "64:ff9b:1::1", "1fff::1"})
        EXPECT_NE(why(text), "") << text;
}

// An address within an address counts as what it leads to.
TEST(Address, WhatIsEmbeddedIsLookedAt) {
    EXPECT_EQ(why("64:ff9b::127.0.0.1"), "loopback");
    EXPECT_EQ(why("64:ff9b::169.254.169.254"), why("169.254.169.254"));
    EXPECT_EQ(why("2002:7f00:1::1"), "loopback");
    EXPECT_EQ(why("2002:a9fe:a9fe::1"), why("169.254.169.254"));
    EXPECT_EQ(why("2002:a00:1::1"), "private");
}

TEST(Address, AnythingButFourOrSixteenBytesIsNone) {
    const std::uint8_t bytes[8] = {8, 8, 8, 8, 8, 8, 8, 8};
    EXPECT_NE(why_not_global({bytes, 8}), "");
    EXPECT_NE(why_not_global({}), "");
}
