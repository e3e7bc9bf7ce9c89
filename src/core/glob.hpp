// Which events a sink takes: the option `events`, comma-separated globs over aggregate_type/event_type.
//
//   payment/*           every event of the aggregate type `payment`; `payment` alone means the same
//   payment/captured*   event types of it that begin with `captured`
//   */created           this event type of any aggregate type, and of events without one
//   /ping               this event type of events without an aggregate type (which counts as an empty one)
//   *                   everything
//
// `*` is any number of characters, `?` exactly one; neither crosses the slash, which is in no aggregate type and no event
// type. Letters count in their case, spaces round a glob do not. An event is taken when one of the globs matches.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/event.hpp"

namespace outbox::core {

// One glob without a slash against one text (UTF-8). Never more than glob times text steps.
bool glob_matches(std::string_view glob, std::string_view text);

class EventFilter {
public:
    // Takes everything.
    EventFilter() = default;

    // False leaves the filter as it was and says why. A glob that no event could match is an error.
    bool parse(std::string_view globs, std::string& error, std::string& hint);

    bool matches(Bytes aggregate_type, Bytes event_type) const;
    bool matches(const Event& event) const { return matches(event.aggregate_type, event.event_type); }

    bool matches_everything() const { return pairs_.empty(); }

private:
    struct Pair {
        std::string aggregate_type, event_type;
    };
    std::vector<Pair> pairs_;  // none: everything
};

}  // namespace outbox::core
