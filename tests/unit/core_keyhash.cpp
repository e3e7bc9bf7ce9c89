#include "core/keyhash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace outbox::core;

// If one of these fails, the code is wrong, never the value: see keyhash.hpp.
TEST(KeyHash, ValuesAreFixedForEver) {
    EXPECT_EQ(key_hash(""), 0xEFD01F60BA992926u);
    EXPECT_EQ(key_hash("a"), 0x82A2A958A9BECE5Bu);
    EXPECT_EQ(key_hash("order-1"), 0x491B422E3AF0D9A5u);
    EXPECT_EQ(key_hash("order-2"), 0xAACA0C2AEAE39BABu);
    EXPECT_EQ(key_hash("cust:42"), 0x487087111FA9852Bu);
    EXPECT_EQ(key_hash("ключ"), 0x590520D718275ED5u);
    EXPECT_EQ(key_hash(std::string_view("\0\xff", 2)), 0xACB64F88D28B68B8u);
    EXPECT_EQ(mix_bits(0), 0u);
    EXPECT_EQ(mix_bits(1), 0xB456BCFC34C2CB2Cu);
}

TEST(KeyHash, LanesAreFixedForEver) {
    EXPECT_EQ(lane_of("order-1", 7, 4), 1);
    EXPECT_EQ(lane_of("order-2", 7, 4), 3);
    EXPECT_EQ(lane_of("ключ", 7, 64), 21);
    EXPECT_EQ(lane_of({}, 1, 4), 0);
    EXPECT_EQ(lane_of({}, 2, 4), 3);
}

TEST(KeyHash, AKeyHasOneLaneWhateverTheId) {
    for (int lanes = 1; lanes <= 64; ++lanes) {
        for (std::int64_t id = 1; id < 100; ++id) {
            const int lane = lane_of("order-1", id, lanes);
            ASSERT_GE(lane, 0);
            ASSERT_LT(lane, lanes);
            ASSERT_EQ(lane, lane_of("order-1", 0, lanes));
        }
    }
}

TEST(KeyHash, AnEmptyKeyIsAKey) {
    for (std::int64_t id = 1; id < 100; ++id) EXPECT_EQ(lane_of("", id, 64), lane_of("", 0, 64));
}

TEST(KeyHash, SimilarKeysAndConsecutiveIdsSpreadEvenly) {
    for (const int lanes : {2, 3, 4, 8, 16, 64}) {
        std::vector<int> by_key(static_cast<std::size_t>(lanes)), by_id(static_cast<std::size_t>(lanes));
        const int each = 1'000;
        for (int i = 0; i < lanes * each; ++i) {
            ++by_key[static_cast<std::size_t>(lane_of("order-" + std::to_string(i), i, lanes))];
            ++by_id[static_cast<std::size_t>(lane_of({}, i, lanes))];
        }
        for (const auto& counts : {by_key, by_id}) {
            EXPECT_GT(*std::min_element(counts.begin(), counts.end()), each * 8 / 10) << lanes;
            EXPECT_LT(*std::max_element(counts.begin(), counts.end()), each * 12 / 10) << lanes;
        }
    }
}
