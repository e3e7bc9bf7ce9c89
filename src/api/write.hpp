// Writing an event from a client's backend. PostgreSQL regime.
#pragma once

#include "pg/log_writer.hpp"

namespace outbox {

// A row of the log that is being made; what is not set is NULL.
struct EventRow {
    Datum values[pg::kEventColumns] = {};
    bool nulls[pg::kEventColumns];

    EventRow() { memset(nulls, true, sizeof nulls); }
    void set(pg::EventColumn column, Datum value)
    {
        values[column - 1] = value;
        nulls[column - 1] = false;
    }
};

// `values` and `nulls` of all columns (pg/log_writer.hpp). Looks at the event alone, never at the sinks; raises an error that
// names the argument.
void check_event(const Datum *values, const bool *nulls);

// Checks the event, adds trace context and what is the server's, and appends it to the log, or to outbox.scheduled where
// deliver_at is set. Rights are not checked. Returns the event_id.
Datum write_event(EventRow &row);

}  // namespace outbox
