// Wire formats: an event built from the input, in each format, twice from one encoder and once from a fresh one.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "core/utf8.hpp"
#include "core/wire.hpp"

using namespace outbox::core;

namespace {

void demand(bool holds) {
    if (!holds) std::abort();
}

struct Sent {
    bool good = false, null = false;
    std::string value, headers;
    bool operator==(const Sent&) const = default;
};

Sent encode(Encoder& encoder, const Event& event) {
    Sent sent;
    sent.good = encoder.encode(event);
    if (!sent.good) return sent;
    sent.null = is_null(encoder.value());
    sent.value = std::string(encoder.value());
    for (const WireHeader& header : encoder.headers()) {
        demand(!header.name.empty() || !is_null(event.headers));
        sent.headers += std::string(header.name) + (header.null ? '!' : '=') + std::string(header.value) + '\n';
    }
    return sent;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzedDataProvider input(data, size);
    auto maybe = [&]() -> std::optional<std::string> {
        return input.ConsumeBool() ? std::optional(input.ConsumeRandomLengthString(300)) : std::nullopt;
    };
    auto view = [](const std::optional<std::string>& text) { return text ? Bytes(*text) : Bytes(); };

    Event event;
    for (auto& byte : event.event_id) byte = input.ConsumeIntegral<std::uint8_t>();
    event.created_at = input.ConsumeIntegral<std::int64_t>();
    event.payload_is_json = input.ConsumeBool();
    event.replayed = input.ConsumeBool();
    const auto aggregate_type = maybe(), key = maybe(), headers = maybe(), payload = maybe();
    const std::string event_type = input.ConsumeRandomLengthString(300);
    event.aggregate_type = view(aggregate_type);
    event.aggregate_id = view(key);
    event.headers = view(headers);
    event.payload = view(payload);
    event.event_type = event_type;

    Event other;
    other.event_type = "other";
    other.payload = "{}";
    other.headers = R"({"x": "\n", "y": null})";

    for (const Format format :
         {Format::envelope, Format::payload, Format::debezium, Format::cloudevents, Format::cloudevents_structured}) {
        Encoder encoder({format, "/outbox/fuzz"}), fresh({format, "/outbox/fuzz"});
        const Sent first = encode(encoder, event);
        demand(encode(encoder, other).good);
        demand(encode(encoder, event) == first);
        demand(encode(fresh, event) == first);
        if (!first.good) {
            demand(headers.has_value());
            continue;
        }
        demand(first.null == !payload.has_value());
        if (first.null) continue;
        if (format == Format::envelope || format == Format::cloudevents_structured) {
            demand(first.value.front() == '{' && first.value.back() == '}');
            if (event.payload_is_json) demand(first.value.ends_with("\"data\":" + *payload + "}"));
            if (!event.payload_is_json) demand(first.value.ends_with("\"}"));
        } else {
            demand(first.value == *payload);
        }
    }
    return 0;
}
