// An event as it is read from the log and handed to a sink.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace outbox::core {

// A byte string that may be SQL NULL. NULL is data() == nullptr; an empty string has a
// non-null data(). Does not own its bytes.
using Bytes = std::string_view;
constexpr bool is_null(Bytes b) { return b.data() == nullptr; }

using EventId = std::array<std::uint8_t, 16>;

// All views point into memory of the batch that the event belongs to and live as long as it.
// Text is UTF-8 whatever the database's encoding is.
struct Event {
    std::int64_t id = 0;    // the log's order
    std::uint64_t xid = 0;  // full transaction id of the writer
    EventId event_id{};
    std::int64_t created_at = 0;  // microseconds since 1970-01-01 00:00:00 UTC
    Bytes aggregate_type;         // NULL: none
    Bytes aggregate_id;           // ordering key and Kafka key; NULL: no key, no order
    Bytes event_type;             // never NULL
    Bytes payload;                // NULL: tombstone. Sent byte for byte as stored
    bool payload_is_json = true;  // false: bytes (payload_bytes)
    Bytes headers;                // jsonb's canonical text of a flat object; NULL: none
    Bytes topic;                  // overrides the sink's template; NULL: none
    bool replayed = false;        // carries the header outbox-replay
};

}  // namespace outbox::core
