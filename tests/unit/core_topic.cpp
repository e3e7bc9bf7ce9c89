#include "core/topic.hpp"

#include <gtest/gtest.h>

using namespace outbox::core;

namespace {

Event event(Bytes aggregate_type, Bytes event_type, Bytes topic = {}) {
    Event e;
    e.aggregate_type = aggregate_type;
    e.event_type = event_type;
    e.topic = topic;
    return e;
}

struct Expanded {
    bool good;
    std::string topic;
    std::string why;
};

Expanded expand(const TopicTemplate& topics, const Event& e) {
    Buffer out;
    std::string_view topic;
    const bool good = topics.expand(e, out, topic);
    return {good, std::string(topic), good ? "" : topics.explain(e)};
}

Expanded expand(std::string_view text, const Event& e) {
    TopicTemplate topics;
    std::string error, hint;
    EXPECT_TRUE(topics.parse(text, error, hint)) << error;
    return expand(topics, e);
}

std::string parse_error(std::string_view text) {
    TopicTemplate topics;
    std::string error, hint;
    EXPECT_FALSE(topics.parse(text, error, hint)) << text;
    EXPECT_EQ(topics.text(), "outbox.event.{aggregate_type}") << "an error leaves it as it was";
    return error;
}

}  // namespace

TEST(Topic, B39_LegalNames) {
    for (const char* name : {"a", "payments", "A.b_c-9", "...", "._-", "outbox.event.payment"}) {
        EXPECT_TRUE(is_legal_topic(name)) << name;
    }
    EXPECT_TRUE(is_legal_topic(std::string(249, 'x')));
}

TEST(Topic, B39_ImpossibleNames) {
    for (const char* name : {"", ".", "..", "a b", "x/y", "a,b", "a\n", "ключ", "a{b}", "a*"}) {
        EXPECT_FALSE(is_legal_topic(name)) << name;
    }
    EXPECT_FALSE(is_legal_topic(std::string(250, 'x')));
    EXPECT_FALSE(is_legal_topic(std::string_view("a\0b", 3)));
}

TEST(Topic, B39_TheReasonIsNamed) {
    EXPECT_EQ(explain_topic(""), R"("" is no legal Kafka topic name: it is empty)");
    EXPECT_EQ(explain_topic(".."), R"(".." is no legal Kafka topic name: Kafka reserves it)");
    EXPECT_EQ(explain_topic("a b"),
              R"("a b" is no legal Kafka topic name: it may have A-Z, a-z, 0-9, dot, underscore and hyphen only)");
    EXPECT_EQ(explain_topic(std::string(300, 'x')),
              "\"" + std::string(100, 'x') +
                  "...\" is no legal Kafka topic name: it has 300 characters, and at most 249 are allowed");
    EXPECT_EQ(explain_topic("a\nb").substr(0, 5), "\"a?b\"");
}

TEST(TopicTemplate, DefaultDependsOnTheAggregateType) {
    const TopicTemplate topics;
    EXPECT_EQ(expand(topics, event("payment", "captured")).topic, "outbox.event.payment");
    EXPECT_EQ(expand(topics, event({}, "ping")).topic, "outbox.events");
    EXPECT_FALSE(topics.is_fixed());
    EXPECT_EQ(expand("", event("payment", "captured")).topic, "outbox.event.payment");
    EXPECT_EQ(expand("outbox.event.{aggregate_type}", event({}, "ping")).topic, "outbox.events");
}

TEST(TopicTemplate, PutsAttributesIn) {
    EXPECT_EQ(expand("{aggregate_type}.{event_type}", event("payment", "captured")).topic, "payment.captured");
    EXPECT_EQ(expand("x-{event_type}-{event_type}_y", event({}, "e")).topic, "x-e-e_y");
    EXPECT_EQ(expand("{event_type}", event({}, "e")).topic, "e");
}

TEST(TopicTemplate, AFixedOneSaysSo) {
    TopicTemplate topics;
    std::string error, hint;
    ASSERT_TRUE(topics.parse("payments", error, hint));
    EXPECT_TRUE(topics.is_fixed());
    EXPECT_EQ(expand(topics, event("x", "y")).topic, "payments");
    ASSERT_TRUE(topics.parse("p{event_type}", error, hint));
    EXPECT_FALSE(topics.is_fixed());
}

TEST(TopicTemplate, TheEventsOwnTopicOverrides) {
    EXPECT_EQ(expand("payments", event("x", "y", "mine")).topic, "mine");
    const Expanded bad = expand("payments", event("x", "y", "not mine"));
    EXPECT_FALSE(bad.good);
    EXPECT_EQ(bad.topic, "not mine");
    EXPECT_NE(bad.why.find(R"("not mine")"), std::string::npos);
    EXPECT_FALSE(expand("payments", event("x", "y", "")).good) << "an empty name is not an absent one";
}

TEST(TopicTemplate, WhatCannotBeATopicIsReported) {
    const Expanded illegal = expand("t.{event_type}", event({}, "payment captured"));
    EXPECT_FALSE(illegal.good);
    EXPECT_EQ(illegal.topic, "t.payment captured");
    EXPECT_EQ(illegal.why, R"(the sink's topic "t.{event_type}": "t.payment captured" is no legal Kafka topic name: )"
                           "it may have A-Z, a-z, 0-9, dot, underscore and hyphen only");
    const Expanded missing = expand("t.{aggregate_type}", event({}, "ping"));
    EXPECT_FALSE(missing.good);
    EXPECT_EQ(missing.why, R"(the sink's topic "t.{aggregate_type}" needs an aggregate_type, and the event has none)");
    const std::string longest(200, 'a');
    EXPECT_TRUE(expand(std::string(49, 'x') + "{aggregate_type}", event(longest, "e")).good);
    EXPECT_FALSE(expand(std::string(50, 'x') + "{aggregate_type}", event(longest, "e")).good);
    EXPECT_FALSE(expand("{event_type}", event({}, "..")).good);
}

TEST(TopicTemplate, NamesTheBadPlaceholder) {
    EXPECT_NE(parse_error("a.{type}").find(R"(unknown placeholder "{type}")"), std::string::npos);
    EXPECT_NE(parse_error("{}").find(R"(unknown placeholder "{}")"), std::string::npos);
    EXPECT_NE(parse_error("{{event_type}}").find(R"(unknown placeholder "{{event_type}")"), std::string::npos);
    for (const char* text : {"{", "}", "a}b", "{event_type", "{event_type}}", "x{"}) {
        EXPECT_NE(parse_error(text).find("brace"), std::string::npos) << text;
    }
}

TEST(TopicTemplate, RefusesWhatNoEventCouldMakeLegal) {
    for (const std::string& text : {std::string("a b"), std::string("a b{event_type}"), std::string("{event_type}/x"),
                                    std::string("."), std::string(".."), std::string(250, 'x'),
                                    std::string(250, 'x') + "{event_type}", std::string("ключ"), std::string("a\n")}) {
        parse_error(text);
    }
}
