// What an event is over HTTP, and what an answer means.
#include <gtest/gtest.h>

#include "core/base64.hpp"
#include "core/http_message.hpp"
#include "core/http_status.hpp"

using namespace outbox::core;

namespace {

Event event() {
    Event e;
    e.event_id = {0x01, 0x9e, 0x1f, 0x6a, 0x2c, 0x8b, 0x7d, 0x3e, 0x9a, 0x41, 0x5b, 0x6c, 0x7d, 0x8e, 0x9f, 0x00};
    e.created_at = 1'780'000'000'123'456;
    e.aggregate_type = "payment";
    e.aggregate_id = "pay-1";
    e.event_type = "captured";
    e.payload = R"({"amount": 42})";
    return e;
}

HttpMessage encoded(const Event& e, Format format = Format::webhook) {
    SinkOptions options(Kind::http);
    options.format = format;
    options.source = "/outbox/db";
    HttpMessage message;
    EXPECT_TRUE(HttpEncoder(options).encode(e, message));
    return message;
}

std::string header(const HttpMessage& message, std::string_view name) {
    for (const auto& [n, value] : message.headers) {
        if (n == name) return value;
    }
    return "(none)";
}

}  // namespace

TEST(HttpMessage, AWebhookIsTypeTimestampAndDataWithTheEventsIdentity) {
    const HttpMessage m = encoded(event());
    EXPECT_EQ(m.id, "019e1f6a-2c8b-7d3e-9a41-5b6c7d8e9f00");
    EXPECT_EQ(m.body, R"({"type":"captured","timestamp":"2026-05-28T20:26:40.123456Z","event_id":"019e1f6a-2c8b-7d3e-9a41-5b6c7d8e9f00",)"
                      R"("aggregate_type":"payment","aggregate_id":"pay-1","data":{"amount": 42}})");
    EXPECT_EQ(header(m, "content-type"), "application/json");
}

TEST(HttpMessage, NullAndBytes) {
    Event e = event();
    e.payload = {};
    e.aggregate_id = {};
    EXPECT_TRUE(encoded(e).body.ends_with(R"("aggregate_id":null,"data":null})"));
    e.payload = std::string_view("\x01\x02", 2);
    e.payload_is_json = false;
    EXPECT_TRUE(encoded(e).body.ends_with(R"("data_base64":"AQI="})"));
}

TEST(HttpMessage, CloudEvents) {
    Event e = event();
    e.aggregate_id = "käse \"1\"%";
    const HttpMessage binary = encoded(e, Format::cloudevents);
    EXPECT_EQ(binary.body, e.payload);
    EXPECT_EQ(header(binary, "ce-specversion"), "1.0");
    EXPECT_EQ(header(binary, "ce-type"), "captured");
    EXPECT_EQ(header(binary, "ce-source"), "/outbox/db");
    EXPECT_EQ(header(binary, "ce-subject"), "k%C3%A4se%20%221%22%25");
    EXPECT_EQ(header(binary, "content-type"), "application/json");
    const HttpMessage structured = encoded(e, Format::cloudevents_structured);
    EXPECT_EQ(header(structured, "content-type"), "application/cloudevents+json");
    EXPECT_TRUE(structured.body.starts_with(R"({"specversion":"1.0")"));
    e.payload = {};
    EXPECT_EQ(encoded(e, Format::cloudevents).body, "");
    const HttpMessage empty = encoded(e, Format::cloudevents_structured);
    EXPECT_EQ(header(empty, "content-type"), "application/cloudevents+json");
    EXPECT_TRUE(empty.body.ends_with(R"(Z"})")) << "a document without data, nor its type: " << empty.body;
}

// What a writer puts into an event must not become a header that is a credential, ours, or two headers.
TEST(HttpMessage, AnEventsHeadersComeAlongWhereTheyAreLegalAndNotOurs) {
    Event e = event();
    e.headers = R"({"traceparent": "00-1-2-01", "Authorization": "x", "COOKIE": "x", "Host": "x", "Transfer-Encoding": "chunked", "Webhook-Signature": "v1,x",
                    "a b": "x", "crlf": "x\r\nevil: y", "umlaut": "\u00fc", "none": null, "empty": "", "User-Agent": "x", "Proxy-Foo": "x", "": "x"})";
    const HttpMessage m = encoded(e);
    EXPECT_EQ(header(m, "traceparent"), "00-1-2-01");
    EXPECT_EQ(header(m, "empty"), "");
    EXPECT_EQ(m.headers.size(), 3u) << "with content-type";
}

TEST(HttpStatus, EveryStatusHasItsVerdict) {
    for (int status = 200; status < 300; status++) EXPECT_EQ(verdict_of_status(status), Verdict::delivered);
    for (const int status : {401, 403, 404, 405, 407, 408, 421, 425, 429}) EXPECT_EQ(verdict_of_status(status), Verdict::outage) << status;
    for (const int status : {400, 402, 406, 409, 411, 412, 413, 414, 415, 416, 417, 418, 422, 423, 424, 426, 428, 431, 451, 499})
        EXPECT_EQ(verdict_of_status(status), Verdict::refused) << status;
    EXPECT_EQ(verdict_of_status(410), Verdict::gone);
    for (int status = 300; status < 400; status++) EXPECT_EQ(verdict_of_status(status), Verdict::outage) << status;
    for (int status = 500; status < 700; status++) EXPECT_EQ(verdict_of_status(status), Verdict::outage) << status;
    for (int status = 0; status < 200; status++) EXPECT_EQ(verdict_of_status(status), Verdict::outage) << status;
    for (const HttpStatusRow& row : http_status_table())
        EXPECT_EQ(row.strained, row.status == 429 || row.status == 502 || row.status == 503 || row.status == 504) << row.status;
    EXPECT_EQ(status_words(404), "HTTP 404 Not Found");
    EXPECT_EQ(status_words(299), "HTTP 299");
}

TEST(Base64, IsReadStrictly) {
    std::string out;
    for (const auto& [text, bytes] : {std::pair{"", ""}, {"TQ==", "M"}, {"TQ", "M"}, {"TWE=", "Ma"}, {"TWFu", "Man"}, {"+/+/", "\xfb\xff\xbf"}}) {
        EXPECT_TRUE(decode_base64(text, out)) << text;
        EXPECT_EQ(out, bytes);
    }
    for (const char* text : {"T", "TQ=", "TWE==", "TWFu=", "TQ==TQ==", "T Q=", "TR==", "-_-_", "TWF\n"}) EXPECT_FALSE(decode_base64(text, out)) << text;
}
