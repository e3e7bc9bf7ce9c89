// Trace context from the session's settings into an event's headers. PostgreSQL regime.
#pragma once

#include "pg/postgres.hpp"
#include "state/settings.hpp"

namespace outbox {

// Whether there is any: looked at for each event.
inline bool traced()
{
    return *settings::traceparent != '\0' || *settings::tracestate != '\0' || *settings::baggage != '\0';
}

// jsonb: what is set, beside the caller's headers. The caller's win.
Datum with_trace(Datum headers, bool null);

}  // namespace outbox
