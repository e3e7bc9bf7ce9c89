// What an event looks like to a consumer: the value and the headers, in the sink's format.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/buffer.hpp"
#include "core/event.hpp"
#include "core/json.hpp"
#include "core/options.hpp"
#include "core/rfc3339.hpp"
#include "core/uuid.hpp"

namespace outbox::core {

using WireHeader = JsonMember;

struct WireSettings {
    Format format = Format::envelope;
    std::string_view source;  // CloudEvents source
    bool null_values = true;  // false: where there is no such thing as a null value, a structured event without data is still a document
};

// The CloudEvents source of a sink without the option `source`: a URI reference, whatever the database is called.
std::string default_source(std::string_view database);

// One encoder per sink; its buffers serve one event after the other. The same event always gives the same bytes.
class Encoder {
public:
    explicit Encoder(const WireSettings& settings);

    // False when event.headers is not a flat object of strings, which add_event and INSERT refuse: a restored row may
    // carry it. Then neither value nor headers mean anything.
    bool encode(const Event& event);

    // Both are valid until the next encode() and as long as the event. A NULL payload gives a null value, but in a webhook.
    Bytes value() const { return value_; }
    std::span<const WireHeader> headers() const { return headers_; }
    std::string_view id() const { return {id_.data(), id_.size()}; }  // the event's, as text

private:
    std::string_view time() const { return {time_.data(), time_.size()}; }
    void header(std::string_view name, std::string_view value) { headers_.push_back({name, value, false}); }

    void plain_headers(const Event& event);
    void cloudevents_headers(const Event& event);
    void envelope(const Event& event);
    void structured(const Event& event);
    void webhook(const Event& event);
    void data_member(const Event& event);

    const Format format_;
    const bool null_values_;
    const std::string source_;
    const std::string source_json_;  // quoted and escaped
    std::array<char, kUuidLength> id_{};
    std::array<char, kTimeLength> time_{};
    Bytes value_;
    Buffer body_;
    Buffer decoded_;  // headers whose JSON had escapes
    std::vector<WireHeader> headers_;
};

}  // namespace outbox::core
