#include "core/topic.hpp"

#include <algorithm>

#include "core/text.hpp"

namespace outbox::core {

namespace {

constexpr std::string_view kDefault = "outbox.event.{aggregate_type}";
constexpr std::string_view kDefaultWithoutType = "outbox.events";
constexpr char kPlaceholders[] = "The placeholders are {aggregate_type} and {event_type}.";

}  // namespace

bool is_legal_topic(std::string_view name) {
    return !name.empty() && name.size() <= kMaxTopicLength && name != "." && name != ".." &&
           std::all_of(name.begin(), name.end(), is_name_character);
}

std::string explain_topic(std::string_view name) {
    std::string text = quote_for_message(name) + " is no legal Kafka topic name: ";
    const auto bad = std::find_if_not(name.begin(), name.end(), is_name_character);
    if (name.empty()) {
        text += "it is empty";
    } else if (bad != name.end()) {
        text += "it may have A-Z, a-z, 0-9, dot, underscore and hyphen only";
    } else if (name.size() > kMaxTopicLength) {
        text += "it has " + std::to_string(name.size()) + " characters, and at most 249 are allowed";
    } else {
        text += "Kafka reserves it";
    }
    return text;
}

TopicTemplate::TopicTemplate() {
    std::string error, hint;
    parse(kDefault, error, hint);
}

bool TopicTemplate::parse(std::string_view text, std::string& error, std::string& hint) {
    if (text.empty()) text = kDefault;
    std::vector<Part> parts;
    std::size_t literal_length = 0;
    for (std::string_view rest = text; !rest.empty();) {
        const std::size_t open = rest.find_first_of("{}");
        const std::string_view literal = rest.substr(0, open);
        if (!std::all_of(literal.begin(), literal.end(), is_name_character)) {
            error = "topic " + quote_for_message(text) +
                    " has a character that no Kafka topic may have: they are A-Z, a-z, 0-9, dot, underscore and hyphen";
            hint = kPlaceholders;
            return false;
        }
        literal_length += literal.size();
        if (!literal.empty()) parts.push_back({Kind::literal, std::string(literal)});
        if (open == std::string_view::npos) break;

        const std::size_t close = rest.find('}', open);
        if (rest[open] == '}' || close == std::string_view::npos) {
            error = "topic " + quote_for_message(text) + " has a brace without its other half";
            hint = kPlaceholders;
            return false;
        }
        const std::string_view placeholder = rest.substr(open, close + 1 - open);
        if (placeholder == "{aggregate_type}") {
            parts.push_back({Kind::aggregate_type, {}});
        } else if (placeholder == "{event_type}") {
            parts.push_back({Kind::event_type, {}});
        } else {
            error =
                "topic " + quote_for_message(text) + " has an unknown placeholder " + quote_for_message(placeholder);
            hint = kPlaceholders;
            return false;
        }
        rest.remove_prefix(close + 1);
    }
    const bool fixed = parts.size() == 1 && parts[0].kind == Kind::literal;
    if ((fixed && !is_legal_topic(text)) || literal_length > kMaxTopicLength) {
        error = "topic " + explain_topic(text);
        hint = {};
        return false;
    }
    text_ = text;
    parts_ = std::move(parts);
    fixed_ = fixed;
    default_ = text == kDefault;
    return true;
}

bool TopicTemplate::expand(const Event& event, Buffer& out, std::string_view& topic) const {
    if (!is_null(event.topic)) {
        topic = event.topic;
        return is_legal_topic(topic);
    }
    if (fixed_) {
        topic = parts_[0].literal;
        return true;
    }
    if (default_ && is_null(event.aggregate_type)) {
        topic = kDefaultWithoutType;
        return true;
    }
    out.clear();
    bool complete = true;
    for (const Part& part : parts_) {
        switch (part.kind) {
            case Kind::literal: out.append(part.literal); break;
            case Kind::event_type: out.append(event.event_type); break;
            case Kind::aggregate_type:
                complete = complete && !is_null(event.aggregate_type);
                out.append(event.aggregate_type);
                break;
        }
    }
    topic = out.view();
    return complete && is_legal_topic(topic);
}

std::string TopicTemplate::explain(const Event& event) const {
    if (!is_null(event.topic)) return "topic " + explain_topic(event.topic);
    Buffer out;
    std::string_view topic;
    if (expand(event, out, topic)) return {};
    std::string why = "the sink's topic " + quote_for_message(text_);
    if (is_null(event.aggregate_type) && text_.find("{aggregate_type}") != std::string::npos) {
        return why + " needs an aggregate_type, and the event has none";
    }
    return why + ": " + explain_topic(topic);
}

}  // namespace outbox::core
