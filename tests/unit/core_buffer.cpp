#include "core/buffer.hpp"

#include <gtest/gtest.h>

#include <string>

using outbox::core::Buffer;

TEST(Buffer, EmptyViewIsNotNull) {
    Buffer buffer;
    EXPECT_NE(buffer.view().data(), nullptr);
    EXPECT_EQ(buffer.view(), "");
}

TEST(Buffer, KeepsItsBytesWhileItGrows) {
    Buffer buffer;
    std::string expected;
    for (int i = 0; i < 10'000; ++i) {
        const std::string piece(static_cast<std::size_t>(i % 7), static_cast<char>('a' + i % 26));
        buffer.append(piece);
        buffer.append('-');
        expected += piece + '-';
    }
    EXPECT_EQ(buffer.view(), expected);
}

TEST(Buffer, ClearKeepsTheMemory) {
    Buffer buffer;
    buffer.append(std::string(5000, 'x'));
    const char* before = buffer.view().data();
    buffer.clear();
    EXPECT_TRUE(buffer.empty());
    buffer.append(std::string(5000, 'y'));
    EXPECT_EQ(buffer.view().data(), before);
}

TEST(Buffer, ViewsStayWithinWhatWasReserved) {
    Buffer buffer;
    buffer.reserve(1000);
    buffer.append("first");
    const std::string_view view = buffer.view();
    buffer.append(std::string(995, 'z'));
    EXPECT_EQ(buffer.view().data(), view.data());
    EXPECT_EQ(view, "first");
}

TEST(Buffer, MovedFromIsEmptyAndUsable) {
    Buffer a;
    a.append("abc");
    Buffer b = std::move(a);
    EXPECT_EQ(b.view(), "abc");
    a.append("new");  // NOLINT: that it works is what is tested
    EXPECT_EQ(a.view(), "new");
}

TEST(Buffer, TakesNulBytes) {
    Buffer buffer;
    buffer.append(std::string_view("a\0b", 3));
    EXPECT_EQ(buffer.size(), 3u);
}
