#include "core/uuid.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

using namespace outbox::core;

namespace {

std::string text_of(const EventId& id) {
    std::string text(kUuidLength, '#');
    write_uuid(text.data(), id);
    return text;
}

}  // namespace

TEST(Uuid, WritesAndReadsTheSame) {
    EventId id{};
    ASSERT_TRUE(parse_uuid("018F3C5a-9b2e-7c11-8a4b-0011223344fF", id));
    EXPECT_EQ(text_of(id), "018f3c5a-9b2e-7c11-8a4b-0011223344ff");
}

TEST(Uuid, RefusesOtherForms) {
    EventId id{};
    for (const char* text : {"", "018f3c5a-9b2e-7c11-8a4b-0011223344f", "018f3c5a-9b2e-7c11-8a4b-0011223344fff",
                             "018f3c5a9b2e7c118a4b0011223344ff", "{018f3c5a-9b2e-7c11-8a4b-0011223344}",
                             "018f3c5a-9b2e-7c11-8a4b-0011223344fg", "018f3c5a_9b2e-7c11-8a4b-0011223344ff",
                             "018f3c5a-9b2e-7c11-8a4b-+011223344ff"}) {
        EXPECT_FALSE(parse_uuid(text, id)) << text;
    }
}

// The example of RFC 9562, appendix A.6: 2022-02-22T19:22:22Z, rand_a 0xCC3, rand_b 0x18C4DC0C0C07398F.
TEST(Uuid7, MatchesTheExampleOfTheRfc) {
    const std::uint64_t ticks = std::uint64_t{0x017F22E279B0} << 12 | 0xCC3;
    EXPECT_EQ(text_of(make_uuid7(ticks, {0x18, 0xC4, 0xDC, 0x0C, 0x0C, 0x07, 0x39, 0x8F})),
              "017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
    EXPECT_EQ(uuid7_ticks(1'645'557'742'000'000) >> 12, 0x017F22E279B0u);
}

TEST(Uuid7, RandomBitsTouchNeitherVersionNorVariantNorTime) {
    RandomBytes ones;
    ones.fill(0xFF);
    EXPECT_EQ(text_of(make_uuid7(0, ones)), "00000000-0000-7000-bfff-ffffffffffff");
    EXPECT_EQ(text_of(make_uuid7(0, {})), "00000000-0000-7000-8000-000000000000");
}

TEST(Uuid7, MicrosecondsAreInOrder) {
    RandomBytes high;
    high.fill(0xFF);
    for (std::int64_t t = 1'767'323'045'000'000; t < 1'767'323'045'002'100; ++t) {
        EXPECT_LT(make_uuid7(uuid7_ticks(t), high), make_uuid7(uuid7_ticks(t + 1), {}));
    }
}

TEST(Uuid7, ASourceGrowsStrictlyWhateverTheClockDoes) {
    Uuid7Source source;
    RandomBytes high;
    high.fill(0xFF);
    EventId last = source.next(1'767'323'045'000'999, high);
    for (const std::int64_t t :
         {1'767'323'045'000'999, 1'767'323'045'000'999, 1'767'323'044'000'000, std::int64_t{-5}, 1'767'323'045'001'000,
          std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
        const EventId next = source.next(t, {});
        EXPECT_LT(last, next);
        last = next;
    }
}

TEST(Uuid7, FourThousandInOneMicrosecondStayDistinctAndOrdered) {
    Uuid7Source source;
    EventId last{};
    for (int i = 0; i < 10'000; ++i) {
        const EventId next = source.next(1'767'323'045'000'999, {});
        ASSERT_LT(last, next);
        last = next;
    }
}
