#include "core/arena.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

using outbox::core::Arena;

TEST(Arena, KeepsWhatItWasGivenWhileMoreComes) {
    Arena arena;
    std::vector<std::string> given;
    std::vector<std::string_view> kept;
    for (std::size_t i = 0; i < 3'000; ++i) {
        const std::size_t size = i % 500 == 0 ? 300'000 + i : i % 700;
        given.emplace_back(size, static_cast<char>('a' + i % 26));
        kept.push_back(arena.keep(given.back()));
    }
    for (std::size_t i = 0; i < given.size(); ++i) ASSERT_EQ(kept[i], given[i]) << i;
}

TEST(Arena, NullStaysNullAndEmptyDoesNot) {
    Arena arena;
    EXPECT_EQ(arena.keep(std::string_view()).data(), nullptr);
    EXPECT_NE(arena.keep("").data(), nullptr);
    arena.keep("something");
    EXPECT_NE(arena.keep("").data(), nullptr);
}

TEST(Arena, UsesItsMemoryAgain) {
    Arena arena;
    const char* first = arena.keep("first").data();
    arena.keep(std::string(1'000'000, 'x'));
    arena.clear();
    EXPECT_EQ(arena.keep("again").data(), first);
}
