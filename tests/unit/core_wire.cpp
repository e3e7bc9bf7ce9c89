#include "core/wire.hpp"

#include <gtest/gtest.h>

#include <string>

using namespace outbox::core;

namespace {

constexpr EventId kId = {0x01, 0x8f, 0x3c, 0x5a, 0x9b, 0x2e, 0x7c, 0x11,
                         0x8a, 0x4b, 0x00, 0x11, 0x22, 0x33, 0x44, 0xff};
constexpr char kIdText[] = "018f3c5a-9b2e-7c11-8a4b-0011223344ff";
constexpr std::int64_t kTime = 1'767'323'045'000'678;  // 2026-01-02T03:04:05.000678Z

Event event() {
    Event e;
    e.id = 42;
    e.event_id = kId;
    e.created_at = kTime;
    e.aggregate_type = "payment";
    e.aggregate_id = "pay-1";
    e.event_type = "payment.captured";
    e.payload = R"({ "amount" : 1.10 })";
    return e;
}

Event bare() {
    Event e;
    e.event_id = kId;
    e.created_at = kTime;
    e.event_type = "ping";
    e.payload = "1";
    return e;
}

struct Encoded {
    bool good = false;
    bool null = false;
    std::string value;
    std::string headers;  // name=value, a null value as name!, in order, separated by |
};

Encoded encode(Encoder& encoder, const Event& e) {
    Encoded result;
    result.good = encoder.encode(e);
    result.null = is_null(encoder.value());
    result.value = std::string(encoder.value());
    for (const WireHeader& h : encoder.headers()) {
        if (!result.headers.empty()) result.headers += '|';
        result.headers += std::string(h.name) + (h.null ? "!" : "=" + std::string(h.value));
    }
    return result;
}

Encoded encode(Format format, const Event& e, std::string_view source = "/outbox/shop") {
    Encoder encoder({format, source});
    return encode(encoder, e);
}

constexpr Format kFormats[] = {Format::envelope, Format::payload, Format::debezium, Format::cloudevents,
                               Format::cloudevents_structured};

}  // namespace

TEST(Wire, Envelope) {
    const Encoded got = encode(Format::envelope, event());
    EXPECT_TRUE(got.good);
    EXPECT_EQ(got.value,
              R"({"event_id":"018f3c5a-9b2e-7c11-8a4b-0011223344ff","type":"payment.captured",)"
              R"("aggregate_type":"payment","aggregate_id":"pay-1","occurred_at":"2026-01-02T03:04:05.000678Z",)"
              R"("data":{ "amount" : 1.10 }})");
    EXPECT_EQ(got.headers, std::string("event_id=") + kIdText + "|event_type=payment.captured|aggregate_type=payment");
}

TEST(Wire, EnvelopeSaysNullForWhatIsAbsent) {
    const Encoded got = encode(Format::envelope, bare());
    EXPECT_EQ(got.value, R"({"event_id":"018f3c5a-9b2e-7c11-8a4b-0011223344ff","type":"ping","aggregate_type":null,)"
                         R"("aggregate_id":null,"occurred_at":"2026-01-02T03:04:05.000678Z","data":1})");
    EXPECT_EQ(got.headers, std::string("event_id=") + kIdText + "|event_type=ping");
}

TEST(Wire, EnvelopeCarriesBytesAsBase64) {
    Event e = bare();
    e.payload = std::string_view("\x00\x01\xff", 3);
    e.payload_is_json = false;
    EXPECT_NE(encode(Format::envelope, e).value.find(R"(Z","data_base64":"AAH/"})"), std::string::npos);
    e.payload = "";
    EXPECT_NE(encode(Format::envelope, e).value.find(R"(Z","data_base64":""})"), std::string::npos);
}

TEST(Wire, EnvelopeEscapesTypeAndKey) {
    Event e = event();
    e.event_type = R"(a"b\c)";
    e.aggregate_id = "k\"\n\x01 ключ";
    const std::string value = encode(Format::envelope, e).value;
    EXPECT_NE(value.find(R"("type":"a\"b\\c",)"), std::string::npos);
    EXPECT_NE(value.find(R"("aggregate_id":"k\"\n\u0001 ключ",)"), std::string::npos);
}

TEST(Wire, PayloadIsThePayloadAlone) {
    const Encoded got = encode(Format::payload, event());
    EXPECT_EQ(got.value, R"({ "amount" : 1.10 })");
    EXPECT_EQ(got.headers, std::string("event_id=") + kIdText + "|event_type=payment.captured|aggregate_type=payment");
}

TEST(Wire, DebeziumIsThePayloadWithItsId) {
    const Encoded got = encode(Format::debezium, event());
    EXPECT_EQ(got.value, R"({ "amount" : 1.10 })");
    EXPECT_EQ(got.headers, std::string("id=") + kIdText);
}

TEST(Wire, CloudEventsBinary) {
    const Encoded got = encode(Format::cloudevents, event());
    EXPECT_EQ(got.value, R"({ "amount" : 1.10 })");
    EXPECT_EQ(got.headers, std::string("ce_specversion=1.0|ce_id=") + kIdText +
                               "|ce_source=/outbox/shop|ce_type=payment.captured|ce_subject=pay-1|"
                               "ce_time=2026-01-02T03:04:05.000678Z|content-type=application/json");
}

TEST(Wire, CloudEventsBinaryWithoutKeyHasNoSubject) {
    Event e = bare();
    EXPECT_EQ(encode(Format::cloudevents, e).headers.find("ce_subject"), std::string::npos);
    e.aggregate_id = "";
    EXPECT_EQ(encode(Format::cloudevents, e).headers.find("ce_subject"), std::string::npos);
}

TEST(Wire, CloudEventsBinaryNamesBytes) {
    Event e = bare();
    e.payload_is_json = false;
    EXPECT_NE(encode(Format::cloudevents, e).headers.find("content-type=application/octet-stream"), std::string::npos);
}

TEST(Wire, CloudEventsStructured) {
    const Encoded got = encode(Format::cloudevents_structured, event(), "/a\"b");
    EXPECT_EQ(got.value, R"({"specversion":"1.0","id":"018f3c5a-9b2e-7c11-8a4b-0011223344ff","source":"/a\"b",)"
                         R"("type":"payment.captured","subject":"pay-1","time":"2026-01-02T03:04:05.000678Z",)"
                         R"("datacontenttype":"application/json","data":{ "amount" : 1.10 }})");
    EXPECT_EQ(got.headers, "content-type=application/cloudevents+json");
}

TEST(Wire, CloudEventsStructuredCarriesBytesAsBase64AndNoEmptySubject) {
    Event e = bare();
    e.payload = "foobar";
    e.payload_is_json = false;
    EXPECT_EQ(
        encode(Format::cloudevents_structured, e).value,
        R"({"specversion":"1.0","id":"018f3c5a-9b2e-7c11-8a4b-0011223344ff","source":"/outbox/shop","type":"ping",)"
        R"("time":"2026-01-02T03:04:05.000678Z","datacontenttype":"application/octet-stream",)"
        R"("data_base64":"Zm9vYmFy"})");
}

TEST(Wire, B07_NullPayloadIsANullValueInEveryFormat) {
    for (const Format format : kFormats) {
        for (const bool json : {true, false}) {
            Event e = event();
            e.payload = {};
            e.payload_is_json = json;
            const Encoded got = encode(format, e);
            EXPECT_TRUE(got.good);
            EXPECT_TRUE(got.null);
            EXPECT_NE(got.headers.find(kIdText), std::string::npos) << "a tombstone too has its id";
        }
    }
}

TEST(Wire, B07_EmptyPayloadIsNotNull) {
    for (const Format format : kFormats) {
        Event e = event();
        e.payload = "";
        e.payload_is_json = false;
        const Encoded got = encode(format, e);
        EXPECT_FALSE(got.null);
        if (format == Format::payload || format == Format::debezium || format == Format::cloudevents) {
            EXPECT_EQ(got.value, "");
        }
    }
}

TEST(Wire, B07_JsonNullIsFourBytes) {
    Event e = bare();
    e.payload = "null";
    EXPECT_EQ(encode(Format::payload, e).value, "null");
    EXPECT_NE(encode(Format::envelope, e).value.find(R"("data":null})"), std::string::npos);
}

TEST(Wire, StructuredTombstoneGoesInBinaryMode) {
    Event e = event();
    e.payload = {};
    const std::string headers = encode(Format::cloudevents_structured, e).headers;
    EXPECT_EQ(headers.find("ce_specversion=1.0|ce_id="), 0u);
    EXPECT_EQ(headers.find("content-type"), std::string::npos) << "it would announce JSON that is not there";
}

TEST(Wire, B10_PayloadsAreCopiedByteForByte) {
    std::string deep(200, '[');
    deep += std::string(200, ']');
    for (const std::string& payload :
         {std::string(R"({"a":"he said \"hi\" \\ /"})"), std::string(R"([[],[{"b":[]}]])"),
          std::string(R"("just a string")"), std::string("123"), deep, std::string("  {\"z\" :1,\"z\": 2}\n"),
          std::string(R"({"a":"x\u0000y"})"), std::string(R"("\ud83d")")}) {
        Event e = bare();
        e.payload = payload;
        EXPECT_EQ(encode(Format::payload, e).value, payload);
        EXPECT_NE(encode(Format::envelope, e).value.find("\"data\":" + payload + "}"), std::string::npos);
        EXPECT_NE(encode(Format::cloudevents_structured, e).value.find("\"data\":" + payload + "}"), std::string::npos);
    }
}

TEST(Wire, ReplayedEventsSaySo) {
    for (const Format format : kFormats) {
        Event e = event();
        EXPECT_EQ(encode(format, e).headers.find("outbox-replay"), std::string::npos);
        e.replayed = true;
        EXPECT_NE(encode(format, e).headers.find("|outbox-replay=true"), std::string::npos);
    }
}

TEST(Wire, CallersHeadersFollowOurs) {
    Event e = event();
    e.headers = R"({"a": "1", "b": null, "c": "", "d": "x\"\n"})";
    EXPECT_EQ(encode(Format::debezium, e).headers, std::string("id=") + kIdText + "|a=1|b!|c=|d=x\"\n");
    Encoder encoder({Format::debezium, ""});
    ASSERT_TRUE(encoder.encode(e));
    EXPECT_NE(encoder.headers()[3].value.data(), nullptr) << "an empty header value is not null";
}

TEST(Wire, B43_MalformedHeadersAreReported) {
    for (const char* headers : {"", "[]", R"("str")", R"({"a":1})", R"({"a":{"x":1}})", R"({"a":"b")", "null"}) {
        Event e = event();
        e.headers = headers;
        EXPECT_FALSE(encode(Format::payload, e).good) << headers;
    }
}

TEST(Wire, AnEncoderForgetsTheEventBefore) {
    for (const Format format : kFormats) {
        Encoder reused({format, "/outbox/shop"});
        Event noisy = event();
        noisy.headers = R"({"x": "\n\n\n", "y": "2"})";
        noisy.replayed = true;
        encode(reused, noisy);
        noisy.headers = "broken";
        encode(reused, noisy);
        const Encoded again = encode(reused, bare()), fresh = encode(format, bare());
        EXPECT_TRUE(again.good);
        EXPECT_EQ(again.value, fresh.value);
        EXPECT_EQ(again.headers, fresh.headers);
    }
}

TEST(Wire, TheSameEventGivesTheSameBytes) {
    for (const Format format : kFormats) {
        Encoder encoder({format, "/outbox/shop"});
        const Encoded first = encode(encoder, event());
        encode(encoder, bare());
        const Encoded second = encode(encoder, event());
        EXPECT_EQ(first.value, second.value);
        EXPECT_EQ(first.headers, second.headers);
    }
}

TEST(Wire, DefaultSourceIsAUriReference) {
    EXPECT_EQ(default_source("shop"), "/outbox/shop");
    EXPECT_EQ(default_source("My db/ü%"), "/outbox/My%20db%2F%C3%BC%25");
}
