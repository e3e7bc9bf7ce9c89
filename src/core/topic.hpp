// Kafka topic names: what is legal, and the template that gives each event its topic.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/buffer.hpp"
#include "core/event.hpp"

namespace outbox::core {

inline constexpr std::size_t kMaxTopicLength = 249;

// 1 to 249 of A-Z a-z 0-9 . _ - and neither "." nor "..".
bool is_legal_topic(std::string_view name);

// What is wrong with an illegal name, in words that follow it: `"a b" is no legal Kafka topic name: …`. UTF-8.
std::string explain_topic(std::string_view name);

// A template with {aggregate_type} and {event_type}, parsed once per sink and expanded for each event.
class TopicTemplate {
public:
    // The default, also for the text "": outbox.event.{aggregate_type}, or outbox.events for an event without one.
    TopicTemplate();

    // False leaves the template as it was and says why. Only names that are legal whatever is put in, or can be, pass.
    bool parse(std::string_view text, std::string& error, std::string& hint);

    // The topic of an event: its own, or the template with the event's attributes put in. False when the result is
    // not legal or an attribute is missing; `topic` is then what it would have been. The view lives as long as the
    // event, the template and `out`, whose content it replaces.
    bool expand(const Event& event, Buffer& out, std::string_view& topic) const;

    // After expand() said false: why, in a sentence.
    std::string explain(const Event& event) const;

    // One topic for every event that does not name its own.
    bool is_fixed() const { return fixed_; }
    std::string_view text() const { return text_; }

private:
    enum class Kind : unsigned char { literal, aggregate_type, event_type };
    struct Part {
        Kind kind;
        std::string literal;
    };

    std::string text_;
    std::vector<Part> parts_;
    bool fixed_ = false;
    bool default_ = false;
};

}  // namespace outbox::core
