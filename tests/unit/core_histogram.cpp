#include "core/histogram.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "core/counts.hpp"

using outbox::core::Histogram;

namespace {

constexpr std::int64_t kBounds[] = {1, 10, 100};
using Small = Histogram<kBounds>;

std::size_t bucket_of(std::int64_t value) {
    Small h;
    h.add(value);
    return static_cast<std::size_t>(std::find(std::begin(h.buckets), std::end(h.buckets), 1) - std::begin(h.buckets));
}

}  // namespace

TEST(Histogram, AValueBelongsToTheFirstBoundThatIsNotBelowIt) {
    EXPECT_EQ(bucket_of(0), 0u);
    EXPECT_EQ(bucket_of(1), 0u);
    EXPECT_EQ(bucket_of(2), 1u);
    EXPECT_EQ(bucket_of(10), 1u);
    EXPECT_EQ(bucket_of(11), 2u);
    EXPECT_EQ(bucket_of(100), 2u);
    EXPECT_EQ(bucket_of(101), 3u);
    EXPECT_EQ(bucket_of(std::numeric_limits<std::int64_t>::max()), 3u);
    EXPECT_EQ(bucket_of(-5), 0u);
}

TEST(Histogram, WhereTheLastOneWasDoesNotMatter) {
    std::mt19937_64 random(7);
    Small h;
    std::int64_t expected[4]{}, sum = 0;
    for (int i = 0; i < 10'000; ++i) {
        const auto value = static_cast<std::int64_t>(random() % 150);
        h.add(value);
        expected[value <= 1 ? 0 : value <= 10 ? 1 : value <= 100 ? 2 : 3]++;
        sum += value;
    }
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(h.buckets[i], expected[i]);
    EXPECT_EQ(h.sum, sum);
    EXPECT_EQ(h.count(), 10'000);
}

TEST(Histogram, TheBoundsOfWhatIsCountedGrow) {
    using namespace outbox::core;
    EXPECT_TRUE(std::is_sorted(std::begin(kDeliveryBounds), std::end(kDeliveryBounds)));
    EXPECT_TRUE(std::is_sorted(std::begin(kBatchBounds), std::end(kBatchBounds)));
}

TEST(Counts, AnEventThatSeemsToComeFromTheFutureTookNoTime) {
    outbox::core::Counts counts;
    outbox::core::Event event;
    event.created_at = 2'000'000;
    event.payload = "12345";
    EXPECT_FALSE(counts.any);
    counts.delivered(event, 1'000'000);  // the clock was set back
    counts.delivered(event, 2'003'000);
    EXPECT_TRUE(counts.any);
    EXPECT_EQ(counts.delivery.buckets[0], 1);
    EXPECT_EQ(counts.delivery.buckets[2], 1);
    EXPECT_EQ(counts.delivery.sum, 3'000);
    EXPECT_EQ(counts.bytes, 10);
}
