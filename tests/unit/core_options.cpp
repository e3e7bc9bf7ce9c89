#include "core/options.hpp"

#include <gtest/gtest.h>

using namespace outbox::core;

namespace {

SinkOptions set(std::string_view option, std::string_view value) {
    SinkOptions options;
    const OptionError error = set_option(options, option, value);
    EXPECT_EQ(error.option, "") << error.message;
    return options;
}

OptionError refusal(std::string_view option, std::string_view value) {
    SinkOptions options;
    options.lanes = 7;
    const OptionError error = set_option(options, option, value);
    EXPECT_EQ(error.option, option) << value;
    EXPECT_NE(error.message.find(std::string(option)), std::string::npos) << "names the option: " << error.message;
    EXPECT_FALSE(error.hint.empty());
    EXPECT_EQ(options.lanes, 7) << "an error changes nothing";
    return error;
}

}  // namespace

TEST(Options, DefaultsAreThoseOfTheDesign) {
    const SinkOptions o;
    EXPECT_EQ(o.topic, "");
    EXPECT_EQ(o.format, Format::envelope);
    EXPECT_EQ(o.events, "*");
    EXPECT_EQ(o.lanes, 1);
    EXPECT_EQ(o.start, Start::earliest);
    EXPECT_EQ(o.delivery_timeout_ms, 30'000);
    EXPECT_EQ(o.stall_timeout_ms, 2'000);
    EXPECT_EQ(o.on_poison, OnPoison::hold);
    EXPECT_EQ(o.timestamp, Timestamp::created);
}

TEST(Options, EachOfOursIsKnownAndSet) {
    EXPECT_EQ(set("topic", "a.{event_type}").topic, "a.{event_type}");
    EXPECT_EQ(set("format", "payload").format, Format::payload);
    EXPECT_EQ(set("format", "cloudevents_structured").format, Format::cloudevents_structured);
    EXPECT_EQ(set("events", "payment/*,order").events, "payment/*,order");
    EXPECT_EQ(set("lanes", "64").lanes, 64);
    EXPECT_EQ(set("start", "latest").start, Start::latest);
    EXPECT_EQ(set("batch_size", "10000").batch_size, 10'000);
    EXPECT_EQ(set("delivery_timeout", "5min").delivery_timeout_ms, 300'000);
    EXPECT_EQ(set("stall_timeout", "1500ms").stall_timeout_ms, 1'500);
    EXPECT_EQ(set("on_poison", "skip").on_poison, OnPoison::skip);
    EXPECT_EQ(set("timestamp", "sent").timestamp, Timestamp::sent);
    EXPECT_EQ(set("source", "https://example.com/a?b#c").source, "https://example.com/a?b#c");
    EXPECT_EQ(set("home", "7/16384/").home, "7/16384/");
}

TEST(Options, OthersBelongToTheClientLibrary) {
    for (const char* own : {"topic", "format", "events", "lanes", "start", "batch_size", "delivery_timeout",
                            "stall_timeout", "on_poison", "timestamp", "source", "home"}) {
        EXPECT_TRUE(is_own_option(own)) << own;
    }
    for (const char* other : {"", "bootstrap_servers", "batch.size", "Topic", "topic ", "batch.num.messages"}) {
        EXPECT_FALSE(is_own_option(other)) << other;
    }
    SinkOptions options;
    EXPECT_EQ(set_option(options, "bogus", "x").option, "bogus");
    EXPECT_NE(set_option(options, "", "x").option, "") << "an error, though it has no name";
}

TEST(Options, EnumerationsListTheirValues) {
    EXPECT_EQ(refusal("format", "json").hint,
              "Valid values are envelope, payload, debezium, cloudevents and cloudevents_structured.");
    EXPECT_EQ(refusal("format", "json").message, R"(invalid value for option "format": "json")");
    EXPECT_EQ(refusal("start", "").hint, "Valid values are earliest and latest.");
    EXPECT_EQ(refusal("on_poison", "HOLD").hint, "Valid values are hold and skip.");
    EXPECT_EQ(refusal("timestamp", "now").hint, "Valid values are created and sent.");
}

TEST(Options, CountsHaveBounds) {
    for (const char* value : {"0", "65", "-1", "+1", " 1", "1 ", "", "one", "1.5", "0x1", "99999999999999999999"}) {
        EXPECT_EQ(refusal("lanes", value).hint, "Give a whole number from 1 to 64.");
    }
    for (const char* value : {"0", "10001", "-5"}) {
        EXPECT_EQ(refusal("batch_size", value).hint, "Give a whole number from 1 to 10000.");
    }
}

TEST(Options, DurationsHaveUnits) {
    EXPECT_EQ(set("delivery_timeout", "100ms").delivery_timeout_ms, 100);
    EXPECT_EQ(set("delivery_timeout", "30 s").delivery_timeout_ms, 30'000);
    EXPECT_EQ(set("delivery_timeout", "24h").delivery_timeout_ms, 86'400'000);
    EXPECT_EQ(set("stall_timeout", "10ms").stall_timeout_ms, 10);
    for (const char* value :
         {"", "30", "s", "-1s", "1.5s", "30S", "30sec", "30s ", " 30s", "1d", "30 m", "99999999999999999999s"}) {
        EXPECT_NE(refusal("delivery_timeout", value).hint.find("30s"), std::string::npos) << value;
    }
    for (const char* value : {"0s", "99ms", "25h", "1441min", "9223372036854775807h"}) {
        EXPECT_EQ(refusal("delivery_timeout", value).hint, "It may be 100ms to 24h.") << value;
    }
    EXPECT_EQ(refusal("stall_timeout", "0ms").hint, "It may be 10ms to 1h.");
}

TEST(Options, TopicsAndFiltersAreChecked) {
    EXPECT_NE(refusal("topic", "a.{type}").message.find("{type}"), std::string::npos);
    refusal("events", "a/b/c");
    refusal("events", "");
    SinkOptions options;
    EXPECT_EQ(set_option(options, "topic", "a b").option, "topic");
    EXPECT_EQ(set_option(options, "topic", "").option, "topic");
}

TEST(Options, TheSourceIsAUriReference) {
    for (const char* value : {"", " ", "a b", "a\r\nb", "a\"b", "ключ", "<x>"}) refusal("source", value);
}

TEST(Options, MessagesAreShortAndOfOneLine) {
    const std::string message = refusal("format", "x\n" + std::string(5000, 'y')).message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_LT(message.size(), 200u);
}

TEST(Options, PropertiesMayBeWrittenWithUnderscores) {
    EXPECT_EQ(canonical_property("bootstrap_servers"), "bootstrap.servers");
    EXPECT_EQ(canonical_property("bootstrap.servers"), "bootstrap.servers");
    EXPECT_EQ(canonical_property("sasl_oauthbearer.token_endpoint_url"), "sasl.oauthbearer.token.endpoint.url");
    EXPECT_EQ(canonical_property("log_level"), "log_level");
    EXPECT_EQ(canonical_property("log.level"), "log_level");
    EXPECT_EQ(canonical_property("enabled.events"), "enabled_events");
    EXPECT_EQ(canonical_property("ssl_certificate_verify_cb"), "ssl.certificate.verify_cb");
    EXPECT_EQ(canonical_property("ssl_key_location"), "ssl.key.location");
    EXPECT_EQ(canonical_property(""), "");
}
