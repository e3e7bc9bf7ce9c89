#include "core/glob.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

using namespace outbox::core;

namespace {

bool takes(std::string_view globs, Bytes aggregate_type, Bytes event_type) {
    EventFilter filter;
    std::string error, hint;
    EXPECT_TRUE(filter.parse(globs, error, hint)) << error;
    return filter.matches(aggregate_type, event_type);
}

// What a glob means, by trying everything.
bool reference(std::string_view glob, std::string_view text) {
    if (glob.empty()) return text.empty();
    if (glob[0] == '*') {
        for (std::size_t i = 0; i <= text.size(); ++i) {
            if (reference(glob.substr(1), text.substr(i))) return true;
        }
        return false;
    }
    return !text.empty() && (glob[0] == '?' || glob[0] == text[0]) && reference(glob.substr(1), text.substr(1));
}

}  // namespace

TEST(Glob, AgreesWithTheDefinition) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    auto word = [&](std::string_view alphabet, unsigned most) {
        std::string text(random() % (most + 1), ' ');
        for (char& c : text) c = alphabet[random() % alphabet.size()];
        return text;
    };
    for (int i = 0; i < 200'000; ++i) {
        const std::string glob = word("ab*?", 7), text = word("ab", 9);
        ASSERT_EQ(glob_matches(glob, text), reference(glob, text)) << glob << " on " << text;
    }
}

TEST(Glob, AQuestionMarkIsOneCharacterNotOneByte) {
    EXPECT_TRUE(glob_matches("?", "ю"));
    EXPECT_FALSE(glob_matches("??", "ю"));
    EXPECT_TRUE(glob_matches("*?", "😀"));
    EXPECT_TRUE(glob_matches("к?ю*", "ключ"));
    EXPECT_FALSE(glob_matches("к??ю*", "ключ"));
    EXPECT_TRUE(glob_matches("к?юч", "ключ"));
    EXPECT_TRUE(glob_matches("*?ч", "ключ"));
    EXPECT_FALSE(glob_matches("*??c*", "€cd")) << "a star does not stop within a character";
}

TEST(Glob, ManyStarsDoNotExplode) {
    std::string glob;
    for (int i = 0; i < 500; ++i) glob += "*a";
    glob += "b";
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(glob_matches(glob, std::string(20'000, 'a')));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(EventFilter, AStarTakesEverything) {
    EXPECT_TRUE(EventFilter().matches("a", "b"));
    for (const char* globs : {"*", "*/*", "x, *", " * "}) {
        EXPECT_TRUE(takes(globs, "payment", "captured")) << globs;
        EXPECT_TRUE(takes(globs, {}, "ping")) << globs;
    }
    EventFilter filter;
    std::string error, hint;
    EXPECT_TRUE(filter.parse("x,*", error, hint));
    EXPECT_TRUE(filter.matches_everything());
    EXPECT_TRUE(filter.parse("x", error, hint));
    EXPECT_FALSE(filter.matches_everything());
}

TEST(EventFilter, WithoutASlashItIsTheAggregateType) {
    for (const char* globs : {"payment", "payment/*"}) {
        EXPECT_TRUE(takes(globs, "payment", "captured")) << globs;
        EXPECT_FALSE(takes(globs, "payments", "captured")) << globs;
        EXPECT_FALSE(takes(globs, "order", "payment")) << globs;
        EXPECT_FALSE(takes(globs, {}, "payment")) << globs;
    }
    EXPECT_TRUE(takes("pay*", "payment", "captured"));
}

TEST(EventFilter, AStarDoesNotCrossTheSlash) {
    EXPECT_FALSE(takes("*captured", "payment", "captured"));
    EXPECT_TRUE(takes("*/captured", "payment", "captured"));
    EXPECT_TRUE(takes("p*/*red", "payment", "captured"));
    EXPECT_FALSE(takes("p*/*red", "order", "captured"));
}

TEST(EventFilter, NoAggregateTypeCountsAsEmpty) {
    EXPECT_TRUE(takes("/ping", {}, "ping"));
    EXPECT_FALSE(takes("/ping", "x", "ping"));
    EXPECT_TRUE(takes("*/ping", {}, "ping"));
    EXPECT_FALSE(takes("?*/ping", {}, "ping"));
}

TEST(EventFilter, AnyGlobOfTheListIsEnough) {
    EXPECT_TRUE(takes("order/*, payment/captured ,refund", "payment", "captured"));
    EXPECT_FALSE(takes("order/*, payment/captured ,refund", "payment", "authorized"));
    EXPECT_TRUE(takes("order/*, payment/captured ,refund", "refund", "x"));
}

TEST(EventFilter, CaseAndInnerSpacesCount) {
    EXPECT_FALSE(takes("Payment", "payment", "x"));
    EXPECT_TRUE(takes("*/payment captured", "p", "payment captured"));
}

TEST(EventFilter, RefusesWhatNoEventCouldMatch) {
    for (const char* globs :
         {"", " ", ",", "a,", ",a", "a,,b", "a/b/c", "a/", "/", "a b/*", "a\n", "x/a\x01", "ключ/*"}) {
        EventFilter filter;
        std::string error, hint;
        EXPECT_FALSE(filter.parse(globs, error, hint)) << globs;
        EXPECT_EQ(error.rfind("events: glob \"", 0), 0u) << error;
        EXPECT_FALSE(hint.empty());
        EXPECT_TRUE(filter.matches_everything()) << "an error leaves it as it was";
    }
}
