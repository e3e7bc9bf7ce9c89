#include "core/keygate.hpp"

#include <gtest/gtest.h>

#include <vector>

using namespace outbox::core;

TEST(KeyGate, BlocksAKeyOfATopicAndNoOther) {
    KeyGate gate;
    EXPECT_FALSE(gate.blocked("t", "k"));
    EXPECT_TRUE(gate.block("t", "k"));
    EXPECT_FALSE(gate.block("t", "k")) << "it was blocked already";
    EXPECT_TRUE(gate.blocked("t", "k"));
    EXPECT_FALSE(gate.blocked("t", "K"));
    EXPECT_FALSE(gate.blocked("t2", "k"));
    EXPECT_EQ(gate.size(), 1u);
}

TEST(KeyGate, TopicAndKeyDoNotRunTogether) {
    KeyGate gate;
    gate.block("ab", "c");
    EXPECT_FALSE(gate.blocked("a", "bc"));
    EXPECT_FALSE(gate.blocked("c", "ab"));
    EXPECT_FALSE(gate.blocked("abc", ""));
}

TEST(KeyGate, EventsWithoutAKeyAreNeverBlockedAndAnEmptyKeyIsAKey) {
    KeyGate gate;
    EXPECT_FALSE(gate.block("t", {}));
    EXPECT_TRUE(gate.empty());
    gate.block("t", "");
    EXPECT_TRUE(gate.blocked("t", ""));
    EXPECT_FALSE(gate.blocked("t", {}));
}

TEST(KeyGate, CopiesWhatItIsGiven) {
    KeyGate gate;
    {
        std::string topic = "topic", key(100, 'k');
        gate.block(topic, key);
        topic.assign(5, 'x');
        key.assign(100, 'x');
    }
    EXPECT_TRUE(gate.blocked("topic", std::string(100, 'k')));
}

TEST(KeyGate, ReleaseForgetsThatOne) {
    KeyGate gate;
    gate.block("t", "k");
    gate.block("t", "other");
    gate.release("u", "k");
    EXPECT_TRUE(gate.blocked("t", "k"));
    gate.release("t", "k");
    EXPECT_FALSE(gate.blocked("t", "k"));
    EXPECT_TRUE(gate.blocked("t", "other"));
    EXPECT_TRUE(gate.block("t", "k")) << "anew";
}

TEST(KeyGate, ClearForgets) {
    KeyGate gate;
    for (int i = 0; i < 10'000; ++i) gate.block("t", std::to_string(i));
    for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(gate.blocked("t", std::to_string(i)));
    EXPECT_FALSE(gate.blocked("t", "10000"));
    gate.clear();
    EXPECT_FALSE(gate.blocked("t", "1"));
}

TEST(Overtaking, IsFoundWhereItHappens) {
    const std::vector<Outcome> batch = {{"t", "a", true},  {"t", "b", false}, {"t", "a", true}, {"u", "b", true},
                                        {"t", "b", false}, {"t", "b", true},  {"t", "b", true}};
    EXPECT_EQ(find_overtaking(batch), 5u);
    EXPECT_EQ(find_overtaking(std::span(batch).first(5)), kNoOvertaking);
}

TEST(Overtaking, FailuresAtTheEndOfAKeyAreInOrder) {
    const std::vector<Outcome> batch = {{"t", "a", true}, {"t", "a", true}, {"t", "a", false}, {"t", "b", true}};
    EXPECT_EQ(find_overtaking(batch), kNoOvertaking);
    EXPECT_EQ(find_overtaking({}), kNoOvertaking);
}

TEST(Overtaking, EventsWithoutAKeyHaveNoOrder) {
    const std::vector<Outcome> batch = {{"t", {}, false}, {"t", {}, true}, {"t", "", false}, {"t", {}, true}};
    EXPECT_EQ(find_overtaking(batch), kNoOvertaking);
}
