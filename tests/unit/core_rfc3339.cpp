#include "core/rfc3339.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

using namespace outbox::core;

namespace {

std::string written(std::int64_t micros) {
    std::string text(kTimeLength + 1, '#');
    write_rfc3339(text.data(), micros);
    EXPECT_EQ(text.back(), '#') << "writes no more than it says";
    text.pop_back();
    return text;
}

}  // namespace

TEST(Rfc3339, GoldenTimes) {
    EXPECT_EQ(written(0), "1970-01-01T00:00:00.000000Z");
    EXPECT_EQ(written(-1), "1969-12-31T23:59:59.999999Z");
    EXPECT_EQ(written(951'782'400'000'000), "2000-02-29T00:00:00.000000Z");
    EXPECT_EQ(written(951'868'799'999'999), "2000-02-29T23:59:59.999999Z");
    EXPECT_EQ(written(951'868'800'000'000), "2000-03-01T00:00:00.000000Z");
    EXPECT_EQ(written(1'709'164'800'000'001), "2024-02-29T00:00:00.000001Z");
    EXPECT_EQ(written(1'767'225'599'999'999), "2025-12-31T23:59:59.999999Z");
    EXPECT_EQ(written(1'767'225'600'000'000), "2026-01-01T00:00:00.000000Z");
    EXPECT_EQ(written(4'107'542'399'000'000), "2100-02-28T23:59:59.000000Z");
    EXPECT_EQ(written(4'107'542'400'000'000), "2100-03-01T00:00:00.000000Z");
}

TEST(Rfc3339, ClampsWhatItCannotSay) {
    EXPECT_EQ(written(std::numeric_limits<std::int64_t>::max()), "9999-12-31T23:59:59.999999Z");
    EXPECT_EQ(written(std::numeric_limits<std::int64_t>::min()), "0001-01-01T00:00:00.000000Z");
}
