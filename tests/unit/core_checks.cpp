#include "core/checks.hpp"

#include <gtest/gtest.h>

using namespace outbox::core;

namespace {

constexpr std::size_t kLimit = 900 * 1024;

Event good() {
    Event e;
    e.aggregate_type = "payment";
    e.aggregate_id = "pay-1";
    e.event_type = "payment.captured";
    e.payload = "{}";
    e.topic = "payments";
    e.headers = R"({"trace": "abc", "none": null, "empty": ""})";
    return e;
}

// The argument that is complained of, "" for none.
std::string complaint(const Event& e, std::size_t limit = kLimit) {
    const auto problem = check_event(e, limit);
    if (!problem) return "";
    const std::string named = problem->argument == "headers" ? "header" : std::string(problem->argument);
    EXPECT_NE(problem->message.find(named), std::string::npos) << "the message names it: " << problem->message;
    EXPECT_EQ(problem->sqlstate.size(), 5u);
    return std::string(problem->argument);
}

std::string headers_complaint(Bytes headers) {
    Event e = good();
    e.headers = headers;
    return complaint(e);
}

std::string type_complaint(Bytes type) {
    Event e = good();
    e.event_type = type;
    return complaint(e);
}

std::string message(const Event& e, std::size_t limit = kLimit) {
    const auto problem = check_event(e, limit);
    return problem ? problem->message : "";
}

}  // namespace

TEST(Checks, GoodEventsPass) {
    EXPECT_EQ(complaint(good()), "");
    Event least;
    least.event_type = "x";
    EXPECT_EQ(complaint(least), "");
}

TEST(Checks, AnyKeyPasses) {
    Event e = good();
    for (const char* key : {"", " ", "a/b,c*", "ключ", "line\nbreak"}) {
        e.aggregate_id = key;
        EXPECT_EQ(complaint(e), "") << key;
    }
}

TEST(Checks, B01_PayloadsAreNotLookedAt) {
    Event e = good();
    for (const char* payload : {R"({"a":"x\u0000y"})", R"("\ud83d")", "", "not json"}) {
        e.payload = payload;
        EXPECT_EQ(complaint(e), "") << payload;
    }
}

TEST(Checks, EventTypeIsPrintableWithoutSlashStarAndComma) {
    for (const char* type : {"a", "payment captured", "Payment.Captured", "событие", "😀", "a?b", "\"", "{}"}) {
        EXPECT_EQ(type_complaint(type), "") << type;
    }
    for (const char* type :
         {"", "a/b", "a*", "a,b", "a\n", "a\x7f", "a\xC2\x85", "a\xE2\x80\xA8", "\xEF\xBB\xBF", "\xFF"}) {
        EXPECT_EQ(type_complaint(type), "event_type") << testing::PrintToString(type);
    }
    EXPECT_EQ(type_complaint(std::string_view("a\0b", 3)), "event_type");
}

TEST(Checks, EventTypeIsCountedInCharactersNotBytes) {
    std::string longest;
    for (int i = 0; i < 255; ++i) longest += "ю";
    EXPECT_EQ(type_complaint(longest), "");
    EXPECT_EQ(type_complaint(longest + "x"), "event_type");
}

TEST(Checks, EventTypeMustNotBeNull) {
    Event e = good();
    e.event_type = {};
    const auto problem = check_event(e, kLimit);
    ASSERT_TRUE(problem);
    EXPECT_EQ(problem->argument, "event_type");
    EXPECT_EQ(problem->sqlstate, "22004");
}

TEST(Checks, AggregateTypeIsAName) {
    Event e = good();
    const std::string longest(200, 'a'), too_long(201, 'a');
    for (const std::string& type : {std::string("a"), std::string("Payment.v2_x-1"), longest}) {
        e.aggregate_type = type;
        EXPECT_EQ(complaint(e), "") << type;
    }
    for (const std::string& type : {std::string(""), std::string("a b"), std::string("a/b"), std::string("ключ"),
                                    std::string("a\n"), std::string("{x}"), too_long}) {
        e.aggregate_type = type;
        EXPECT_EQ(complaint(e), "aggregate_type") << type;
    }
}

TEST(Checks, B39_ImpossibleTopicsAreRefused) {
    Event e = good();
    const std::string too_long(300, 'x');
    for (const std::string& topic :
         {std::string(""), std::string("a b"), std::string("x/y"), std::string(".."), std::string("."), too_long}) {
        e.topic = topic;
        EXPECT_EQ(complaint(e), "topic") << topic;
    }
}

TEST(Checks, B43_HeadersAreAFlatObjectOfStrings) {
    for (const char* headers : {"{}", R"({"a":"b"})", R"({"a":null})", R"({"ключ":"значение"})", R"({"a":"\"\\/"})"}) {
        EXPECT_EQ(headers_complaint(headers), "") << headers;
    }
    for (const char* headers : {"[]", R"("str")", "null", "1", R"({"a":1})", R"({"a":true})", R"({"c":{"x":1}})",
                                R"({"a":["b"]})", R"({"":"v"})", "", R"({"a":"b")"}) {
        EXPECT_EQ(headers_complaint(headers), "headers") << headers;
    }
}

TEST(Checks, B43_TenThousandHeadersPassWithinTheSize) {
    std::string headers = "{";
    for (int i = 0; i < 10'000; ++i) headers += (i ? ",\"h" : "\"h") + std::to_string(i) + "\":\"v\"";
    headers += "}";
    EXPECT_EQ(headers_complaint(headers), "");
    EXPECT_EQ(headers_complaint(R"({"a":")" + std::string(1 << 20, 'x') + R"("})"), "headers");
}

TEST(Checks, B94_ControlCharactersInHeadersAreRefused) {
    for (const char* headers :
         {R"({"a":"x\r\nHost: evil"})", R"({"a":"\n"})", R"({"a\nb":"v"})", R"({"a":"\u0001"})", R"({"a\t":null})",
          R"({"a":"\u007f"})", R"({"a":"\u0085"})", "{\"a\":\"\xC2\x85\"}", "{\"a\x7f\":\"\"}", R"({"a":"\u0000"})"}) {
        EXPECT_EQ(headers_complaint(headers), "headers") << headers;
    }
}

TEST(Checks, ReservedHeaderNamesAreRefusedInAnyCase) {
    for (const char* name : {"event_id", "event_type", "aggregate_type", "id", "content-type", "Content-Type", "ID",
                             "ce_id", "ce_", "CE_anything", "outbox-replay", "Outbox-X"}) {
        EXPECT_TRUE(is_reserved_header(name)) << name;
        EXPECT_EQ(headers_complaint(std::string("{\"") + name + "\": \"v\"}"), "headers") << name;
    }
    EXPECT_EQ(headers_complaint(R"({"\u0069d": "v"})"), "headers") << "also when written with escapes";
    for (const char* name :
         {"event", "event_ids", "ident", "i", "ce", "ce-id", "outbox", "content-type2", "aggregate_id", "x-id"}) {
        EXPECT_FALSE(is_reserved_header(name)) << name;
    }
}

TEST(Checks, TheSizeIsThatOfTheWholeEventAndTheMessageSaysBoth) {
    Event e = good();
    const std::size_t size = event_size(e);
    EXPECT_EQ(complaint(e, size), "");
    EXPECT_EQ(message(e, size - 1), "the event has " + std::to_string(size) + " bytes (payload 2, headers " +
                                        std::to_string(e.headers.size()) + "), and outbox.max_event_size allows " +
                                        std::to_string(size - 1));
    EXPECT_EQ(check_event(e, size - 1)->sqlstate, "54000");
    const std::string large(kLimit + 1, 'x');
    e.payload = large;
    EXPECT_EQ(check_event(e, kLimit)->argument, "payload");
    e.payload = "{}";
    e.aggregate_id = large;
    EXPECT_EQ(check_event(e, kLimit)->argument, "aggregate_id");
}

TEST(Checks, MessagesAreFitForALogLine) {
    Event e = good();
    const std::string nasty = "evil\nLOG:  forged " + std::string(5000, 'x');
    e.event_type = nasty;
    const std::string text = message(e);
    EXPECT_EQ(text.find('\n'), std::string::npos);
    EXPECT_LT(text.size(), 300u);
}
