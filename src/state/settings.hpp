// The outbox.* settings. Plain globals, as PostgreSQL's settings are.
#pragma once

namespace outbox::settings {

extern bool publish;            // outbox.publish: relays send (reload)
extern int poll_interval_ms;    // outbox.poll_interval: how often a relay looks without being woken
extern int retention_s;         // outbox.retention: how long a published event is kept
extern int inbox_retention_s;   // outbox.inbox_retention: how long a claim is remembered; -1: for ever
extern int replay_rate;         // outbox.replay_rate: events a second of a sink's replay, at most
extern int max_event_size;      // outbox.max_event_size, bytes: payload, headers, key, types and topic together
extern bool lock_keys;          // outbox.lock_keys: a transaction-level advisory lock on the key before the id is drawn
extern char *traceparent;       // outbox.traceparent, tracestate, baggage: headers of the events written meanwhile; empty: none
extern char *tracestate, *baggage;
extern char *instance;          // outbox.instance: this installation's name; empty: none
extern char *fault;             // outbox.fault: only in builds with fault points
extern double retry_scale;      // outbox.retry_scale, likewise: the pauses of refused events times this, so that a test sees all of them

void define();  // once per process, from _PG_init

}  // namespace outbox::settings
