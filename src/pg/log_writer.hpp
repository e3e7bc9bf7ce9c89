// Writing to the log from a client's backend. PostgreSQL regime: these functions may ereport.
#pragma once

#include "pg/postgres.hpp"

namespace outbox::pg {

inline constexpr int kSegments = 16;

// Columns of outbox.events; outbox.scheduled has the same and deliver_at.
enum EventColumn : int {
    kId = 1, kXid, kEventId, kAggregateType, kAggregateId, kEventType, kPayload, kPayloadBytes, kHeaders, kTopic, kCreatedAt,
    kSegment, kDeliverAt = kSegment
};
inline constexpr int kEventColumns = 12;

::Oid outbox_schema();                 // ereports when the extension is not there
::Oid outbox_relation(const char *name);
::Oid partition(int segment);          // of outbox.events
::Oid scheduled();
void check_columns(Relation rel);      // ereports when they are not those of the library's version

// The transaction gets its id first and the event its id after: an event of a transaction that had no id when a
// relay read can only have an id above what the relay has seen (src/README.md, "What is pending").
int64 draw_id();
int64 current_turn();                  // of the ring of segments, as every writer sees it from now on
int16 current_segment();               // read after draw_id() has assigned the transaction id
Datum new_event_id();                  // uuid, palloc'd

// Advisory lock on the key until the end of the transaction (outbox.lock_keys).
void lock_key(text *key);

// Appends a row (values of all columns) to the partition or table, its indexes included. Rights are not checked and
// triggers do not fire: the caller has EXECUTE on add_event and has checked the event.
void insert_event(::Oid relation, Datum *values, bool *nulls);

// Set while retention truncates: the trigger on TRUNCATE lets it pass.
extern bool retention_truncates;

// The relays of this database are woken when the transaction commits.
void wake_at_commit();
// The same for a change of sinks: relays read their options again, the launcher looks for new sinks.
void sinks_changed_at_commit();

}  // namespace outbox::pg
