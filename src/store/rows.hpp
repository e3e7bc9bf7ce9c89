// A row of outbox.events, or of a table with its columns, as an event.
#pragma once

#include "core/event.hpp"
#include "pg/spi.hpp"

namespace outbox::store {

// Cells of: id, xid, event_id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, headers::text, topic, created_at.
core::Event event_of(const pg::Cell *cells);

}  // namespace outbox::store
