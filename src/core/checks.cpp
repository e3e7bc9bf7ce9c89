#include "core/checks.hpp"

#include <algorithm>

#include "core/json.hpp"
#include "core/text.hpp"
#include "core/topic.hpp"
#include "core/utf8.hpp"

namespace outbox::core {

namespace {

constexpr std::size_t kMaxAggregateType = 200;
constexpr std::size_t kMaxEventType = 255;  // characters

constexpr std::string_view kInvalidValue = "22023";    // invalid_parameter_value
constexpr std::string_view kNullNotAllowed = "22004";  // null_value_not_allowed
constexpr std::string_view kTooLarge = "54000";        // program_limit_exceeded

using Found = std::optional<Problem>;

Problem invalid(std::string_view argument, std::string message, std::string hint = {}) {
    return {argument, std::move(message), std::move(hint), kInvalidValue};
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool begins_with_in_any_case(std::string_view text, std::string_view prefix) {
    return text.size() >= prefix.size() &&
           std::equal(prefix.begin(), prefix.end(), text.begin(), [](char a, char b) { return a == lower(b); });
}

bool has_control(std::string_view text) {
    const char* at = text.data();
    const char* end = at + text.size();
    while (at < end) {
        if (is_control(read_utf8(at, end))) return true;
    }
    return false;
}

Found check_event_type(Bytes type) {
    constexpr std::string_view argument = "event_type";
    if (is_null(type)) return Problem{argument, "event_type must not be null", {}, kNullNotAllowed};
    if (type.empty()) return invalid(argument, "event_type must not be empty");
    const char* at = type.data();
    const char* end = at + type.size();
    std::size_t length = 0;
    for (; at < end; ++length) {
        const char32_t c = read_utf8(at, end);
        if (c == '/' || c == '*' || c == ',' || !is_printable(c)) {
            return invalid(argument,
                           "event_type " + quote_for_message(type) + " has a character that is not allowed in it",
                           "It may have printable characters except the slash, the asterisk and the comma.");
        }
    }
    if (length > kMaxEventType) {
        return invalid(argument,
                       "event_type has " + std::to_string(length) + " characters, and at most 255 are allowed");
    }
    return {};
}

Found check_aggregate_type(Bytes type) {
    constexpr std::string_view argument = "aggregate_type";
    if (is_null(type)) return {};
    if (type.empty()) {
        return invalid(argument, "aggregate_type must not be empty", "For an event without one give NULL.");
    }
    if (!std::all_of(type.begin(), type.end(), is_name_character)) {
        return invalid(argument,
                       "aggregate_type " + quote_for_message(type) + " has a character that is not allowed in it",
                       "It may have A-Z, a-z, 0-9, dot, underscore and hyphen: it becomes part of topic names.");
    }
    if (type.size() > kMaxAggregateType) {
        return invalid(
            argument, "aggregate_type has " + std::to_string(type.size()) + " characters, and at most 200 are allowed");
    }
    return {};
}

Found check_topic(Bytes topic) {
    if (is_null(topic) || is_legal_topic(topic)) return {};
    return invalid("topic", "topic " + explain_topic(topic));
}

Found check_headers(Bytes headers) {
    constexpr std::string_view argument = "headers";
    constexpr char shape[] = "Give a flat object whose values are strings or null, for example {\"trace\": \"abc\"}.";
    using Step = FlatObjectReader::Step;
    if (is_null(headers)) return {};

    FlatObjectReader reader(headers);
    FlatObjectReader::Member member;
    Buffer decoded;  // takes memory only for a name or value with escapes
    auto text_of = [&](std::string_view raw, bool escaped) {
        decoded.clear();
        return escaped ? decode_json_string(raw, decoded) : raw;
    };
    Step step;
    while ((step = reader.next(member)) == Step::member) {
        if (has_control(text_of(member.value, member.value_escaped))) {
            return invalid(argument,
                           "the value of header " + quote_for_message(member.name) + " has a control character");
        }
        const std::string_view name = text_of(member.name, member.name_escaped);
        if (name.empty()) return invalid(argument, "headers has an empty name");
        if (has_control(name)) {
            return invalid(argument, "header name " + quote_for_message(name) + " has a control character");
        }
        if (is_reserved_header(name)) {
            return invalid(
                argument, "header name " + quote_for_message(name) + " is reserved",
                "The relay sets event_id, event_type, aggregate_type, id, content-type, ce_* and outbox-* itself.");
        }
    }
    switch (step) {
        case Step::not_an_object: return invalid(argument, "headers must be a JSON object", shape);
        case Step::not_a_string:
            return invalid(argument, "the value of header " + quote_for_message(member.name) + " is not a string",
                           shape);
        case Step::malformed: return invalid(argument, "headers cannot be read as a JSON object of strings", shape);
        case Step::member:
        case Step::end: break;
    }
    return {};
}

// Names the argument that takes most of the room.
Found check_size(const Event& event, std::size_t limit) {
    const std::size_t size = event_size(event);
    if (size <= limit) return {};
    std::string_view argument = "payload";
    if (event.headers.size() > event.payload.size()) argument = "headers";
    if (event.aggregate_id.size() > std::max(event.payload.size(), event.headers.size())) argument = "aggregate_id";
    return Problem{argument,
                   "the event has " + std::to_string(size) + " bytes (payload " + std::to_string(event.payload.size()) +
                       ", headers " + std::to_string(event.headers.size()) + "), and outbox.max_event_size allows " +
                       std::to_string(limit),
                   "Put what is large elsewhere and send a reference to it.", kTooLarge};
}

}  // namespace

bool is_reserved_header(std::string_view name) {
    for (const std::string_view reserved : {"event_id", "event_type", "aggregate_type", "id", "content-type"}) {
        if (name.size() == reserved.size() && begins_with_in_any_case(name, reserved)) return true;
    }
    return begins_with_in_any_case(name, "ce_") || begins_with_in_any_case(name, "outbox-");
}

std::size_t event_size(const Event& event) {
    return event.payload.size() + event.headers.size() + event.aggregate_id.size() + event.aggregate_type.size() +
           event.event_type.size() + event.topic.size();
}

std::optional<Problem> check_event(const Event& event, std::size_t max_event_size) {
    Found problem = check_event_type(event.event_type);
    if (!problem) problem = check_aggregate_type(event.aggregate_type);
    if (!problem) problem = check_topic(event.topic);
    if (!problem) problem = check_headers(event.headers);
    if (!problem) problem = check_size(event, max_event_size);
    return problem;
}

}  // namespace outbox::core
