#include "core/backoff.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>

using outbox::core::Backoff;

namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

}  // namespace

TEST(Backoff, TheCeilingDoublesUpToItsMost) {
    Backoff backoff(100, 5'000);
    for (const std::int64_t ceiling : {100, 200, 400, 800, 1'600, 3'200, 5'000, 5'000}) {
        EXPECT_EQ(backoff.ceiling_ms(), ceiling);
        backoff.next_ms(0);
    }
    EXPECT_EQ(backoff.failures(), 8);
}

TEST(Backoff, TheSameRandomNumbersGiveTheSameWaits) {
    Backoff a(100, 5'000), b(100, 5'000);
    for (std::uint64_t random : {0u, 17u, 12345u, 999999u}) EXPECT_EQ(a.next_ms(random), b.next_ms(random));
}

TEST(Backoff, WaitsFillTheWholeRangeAndNeverLeaveIt) {
    std::mt19937_64 random(1);
    std::int64_t least = 1'000'000, most = 0, sum = 0;
    for (int i = 0; i < 20'000; ++i) {
        Backoff backoff(100, 5'000);
        backoff.next_ms(0);
        backoff.next_ms(0);  // now up to 400
        const std::int64_t wait = backoff.next_ms(random());
        least = std::min(least, wait);
        most = std::max(most, wait);
        sum += wait;
    }
    EXPECT_EQ(least, 50);
    EXPECT_EQ(most, 400);
    EXPECT_NEAR(static_cast<double>(sum) / 20'000, 225, 5);
}

TEST(Backoff, NeverSpins) {
    Backoff backoff(1, 1'000);
    for (int i = 0; i < 1'000; ++i) EXPECT_GE(backoff.next_ms(0), 1);
}

TEST(Backoff, ASuccessStartsAfresh) {
    Backoff backoff(100, 5'000);
    for (int i = 0; i < 20; ++i) backoff.next_ms(kMost);
    backoff.reset();
    EXPECT_EQ(backoff.failures(), 0);
    EXPECT_EQ(backoff.ceiling_ms(), 100);
}

TEST(Backoff, SurvivesOddArgumentsAndManyFailures) {
    Backoff backoff(0, -5);
    EXPECT_EQ(backoff.next_ms(kMost), 1);
    Backoff large(1, std::numeric_limits<std::int64_t>::max());
    for (int i = 0; i < 10'000; ++i) EXPECT_GE(large.next_ms(kMost - static_cast<std::uint64_t>(i)), 1);
}
