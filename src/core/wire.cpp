#include "core/wire.hpp"

#include "core/base64.hpp"

namespace outbox::core {

namespace {

std::string quoted(std::string_view text) {
    Buffer out;
    append_json_string(out, text);
    return std::string(out.view());
}

void append_string_or_null(Buffer& out, Bytes text) {
    if (is_null(text)) {
        out.append("null");
    } else {
        append_json_string(out, text);
    }
}

// CloudEvents forbids an empty subject, so an empty key has none.
bool has_subject(const Event& event) { return !event.aggregate_id.empty(); }

std::string_view content_type(const Event& event) {
    return event.payload_is_json ? "application/json" : "application/octet-stream";
}

}  // namespace

std::string default_source(std::string_view database) {
    constexpr std::string_view unreserved = "-._~";
    constexpr char digits[] = "0123456789ABCDEF";
    std::string source = "/outbox/";
    for (const char c : database) {
        const auto byte = static_cast<unsigned char>(c);
        const bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (alphanumeric || unreserved.find(c) != std::string_view::npos) {
            source += c;
        } else {
            source += {'%', digits[byte >> 4], digits[byte & 15]};
        }
    }
    return source;
}

Encoder::Encoder(const WireSettings& settings)
    : format_(settings.format), null_values_(settings.null_values), source_(settings.source), source_json_(quoted(settings.source)) {}

bool Encoder::encode(const Event& event) {
    headers_.clear();
    body_.clear();
    write_uuid(id_.data(), event.event_id);
    const bool tombstone = is_null(event.payload);
    value_ = event.payload;

    switch (format_) {
        case Format::envelope:
            if (!tombstone) envelope(event);
            plain_headers(event);
            break;
        case Format::payload: plain_headers(event); break;
        case Format::debezium: header("id", id()); break;
        case Format::webhook: webhook(event); break;
        case Format::cloudevents: cloudevents_headers(event); break;
        case Format::cloudevents_structured:
            // A null value has no room for the attributes. CloudEvents lets each record choose its mode (by its
            // content-type), so a tombstone goes in binary mode and keeps its id.
            if (tombstone && null_values_) {
                cloudevents_headers(event);
            } else {
                structured(event);
                header("content-type", "application/cloudevents+json");
            }
            break;
    }
    if (event.replayed) header("outbox-replay", "true");
    return is_null(event.headers) || parse_flat_object(event.headers, headers_, decoded_);
}

void Encoder::plain_headers(const Event& event) {
    header("event_id", id());
    header("event_type", event.event_type);
    if (!is_null(event.aggregate_type)) header("aggregate_type", event.aggregate_type);
}

void Encoder::cloudevents_headers(const Event& event) {
    write_rfc3339(time_.data(), event.created_at);
    header("ce_specversion", "1.0");
    header("ce_id", id());
    header("ce_source", source_);
    header("ce_type", event.event_type);
    if (has_subject(event)) header("ce_subject", event.aggregate_id);
    header("ce_time", time());
    if (!is_null(event.payload)) header("content-type", content_type(event));
}

void Encoder::envelope(const Event& event) {
    write_rfc3339(time_.data(), event.created_at);
    body_.append(R"({"event_id":")");
    body_.append(id());
    body_.append(R"(","type":)");
    append_json_string(body_, event.event_type);
    body_.append(R"(,"aggregate_type":)");
    append_string_or_null(body_, event.aggregate_type);
    body_.append(R"(,"aggregate_id":)");
    append_string_or_null(body_, event.aggregate_id);
    body_.append(R"(,"occurred_at":")");
    body_.append(time());
    body_.append('"');
    data_member(event);
}

// As Standard Webhooks has it (type, timestamp, data), and what identifies the event. A receiver that knows no null body gets
// a null payload as "data":null.
void Encoder::webhook(const Event& event) {
    write_rfc3339(time_.data(), event.created_at);
    body_.append(R"({"type":)");
    append_json_string(body_, event.event_type);
    body_.append(R"(,"timestamp":")");
    body_.append(time());
    body_.append(R"(","event_id":")");
    body_.append(id());
    body_.append(R"(","aggregate_type":)");
    append_string_or_null(body_, event.aggregate_type);
    body_.append(R"(,"aggregate_id":)");
    append_string_or_null(body_, event.aggregate_id);
    if (!is_null(event.payload)) return data_member(event);
    body_.append(R"(,"data":null})");
    value_ = body_.view();
}

void Encoder::structured(const Event& event) {
    write_rfc3339(time_.data(), event.created_at);
    body_.append(R"({"specversion":"1.0","id":")");
    body_.append(id());
    body_.append(R"(","source":)");
    body_.append(source_json_);
    body_.append(R"(,"type":)");
    append_json_string(body_, event.event_type);
    if (has_subject(event)) {
        body_.append(R"(,"subject":)");
        append_json_string(body_, event.aggregate_id);
    }
    body_.append(R"(,"time":")");
    body_.append(time());
    body_.append('"');
    if (!is_null(event.payload)) {
        body_.append(R"(,"datacontenttype":")");
        body_.append(content_type(event));
        body_.append('"');
    }
    data_member(event);
}

// The payload, unless it is NULL, as the last member, and the end of the object.
void Encoder::data_member(const Event& event) {
    if (is_null(event.payload)) {
    } else if (event.payload_is_json) {
        body_.append(R"(,"data":)");
        body_.append(event.payload);
    } else {
        body_.append(R"(,"data_base64":")");
        append_base64(body_, event.payload);
        body_.append('"');
    }
    body_.append('}');
    value_ = body_.view();
}

}  // namespace outbox::core
