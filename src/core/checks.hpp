// What is asked of an event when it is written. The checks look at the event alone, never at the sinks, and
// run in the caller's transaction: when all is well they allocate nothing, but for header text with escapes in it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/event.hpp"

namespace outbox::core {

struct Problem {
    std::string_view argument;  // of add_event, or column of outbox.events
    std::string message;        // names it too
    std::string hint;           // may be empty
    std::string_view sqlstate;  // five characters
};

// The first problem with what a caller gave: event_type, aggregate_type, aggregate_id, topic, headers, payload. Text is
// UTF-8. Ids, times and the payload's content are not looked at.
std::optional<Problem> check_event(const Event& event, std::size_t max_event_size);

// What counts against outbox.max_event_size.
std::size_t event_size(const Event& event);

// event_id, event_type, aggregate_type, id, content-type, ce_*, outbox-*, in any case.
bool is_reserved_header(std::string_view name);

}  // namespace outbox::core
