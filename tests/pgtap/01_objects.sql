-- Every object of the extension: its name, columns, types, comment. What is not listed here does not exist.
BEGIN;
SELECT * FROM no_plan();

SELECT set_eq(
    $$SELECT c.relname::text, c.relkind::text,
             string_agg(quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END,
                        ', ' ORDER BY a.attnum)
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
      GROUP BY c.oid, c.relname, c.relkind$$,
    $$VALUES
    ('events', 'p', 'id bigint not null, xid xid8 not null, event_id uuid not null, aggregate_type text, aggregate_id text, event_type text not null, payload json, payload_bytes bytea, headers jsonb, topic text, created_at timestamp with time zone not null, segment smallint not null'),
    ('scheduled', 'r', 'id bigint not null, xid xid8 not null, event_id uuid not null, aggregate_type text, aggregate_id text, event_type text not null, payload json, payload_bytes bytea, headers jsonb, topic text, created_at timestamp with time zone not null, deliver_at timestamp with time zone not null'),
    ('segments', 'r', 'turn bigint not null, segment smallint not null, opened_at timestamp with time zone not null, fence xid8, closed_at timestamp with time zone, first_id bigint, last_id bigint, truncated_at timestamp with time zone'),
    ('sinks', 'r', 'sink_id integer not null, name text not null, epoch integer not null, lanes integer not null, floor bigint not null, paused boolean not null, halted text, gone text, gone_url text, created_at timestamp with time zone not null, dropped_at timestamp with time zone'),
    ('lanes', 'r', 'sink_id integer not null, lane integer not null, epoch integer not null, lanes integer not null'),
    ('homes', 'r', 'home text not null'),
    ('progress', 'r', 'sink_id integer not null, epoch integer not null, lane integer not null, batch bigint not null, "position" bigint not null, seen pg_snapshot not null, next_xid xid8 not null, late_position bigint, late_seen pg_snapshot, events integer not null, published bigint not null, recorded_at timestamp with time zone not null, requests bigint[]'),
    ('lane_changes', 'r', 'sink_id integer not null, lanes integer not null, "position" bigint not null, seen pg_snapshot not null, next_xid xid8 not null, since timestamp with time zone not null'),
    ('counters', 'r', 'sink_id integer not null, lane integer not null, published bigint not null, unparked bigint not null, bytes bigint not null, late bigint not null, errors_outage bigint not null, errors_stuck bigint not null, errors_poison bigint not null, errors_producer bigint not null, errors_internal bigint not null, errors_order bigint not null, parked_retry bigint not null, parked_dead bigint not null, parked_behind bigint not null, delivery_us bigint not null, delivery_buckets bigint[] not null, batch_events bigint not null, batch_buckets bigint[] not null, counted_at timestamp with time zone'),
    ('parked_events', 'r', 'sink_id integer not null, id bigint not null, event_id uuid not null, aggregate_type text, aggregate_id text, event_type text not null, payload json, payload_bytes bytea, headers jsonb, topic text, created_at timestamp with time zone not null, destination text not null, reason text not null, attempts integer not null, next_attempt_at timestamp with time zone, last_error text, parked_at timestamp with time zone not null'),
    ('discarded', 'r', 'sink text, id bigint, event_id uuid not null, aggregate_id text, topic text, event_type text, action text not null, reason text, discarded_by text not null, discarded_at timestamp with time zone not null'),
    ('inbox', 'r', 'consumer text not null, event_id uuid not null, claimed_at timestamp with time zone not null'),
    ('replay_requests', 'r', 'replay_id bigint not null, sink_id integer not null, since timestamp with time zone not null, until timestamp with time zone not null, aggregate_id text, "position" bigint not null, last_id bigint not null, sent bigint not null, skipped bigint not null, last_error text, requested_by text not null, started_at timestamp with time zone not null, finished_at timestamp with time zone, stopped boolean not null'),
    ('servers', 'v', 'server_oid oid, name text, wrapper text, owner oid, home text, lanes integer, start text, events text'),
    ('lane_progress', 'v', 'sink_id integer, sink text, lane integer, lanes integer, epoch integer, batch bigint, "position" bigint, seen pg_snapshot, next_xid xid8, late_position bigint, late_seen pg_snapshot, published bigint, recorded_at timestamp with time zone, floor bigint'),
    ('pending', 'v', 'sink text, lane integer, id bigint, xid xid8, event_id uuid, aggregate_type text, aggregate_id text, event_type text, payload json, payload_bytes bytea, headers jsonb, topic text, created_at timestamp with time zone'),
    ('parked', 'v', 'sink text, id bigint, event_id uuid, aggregate_id text, topic text, reason text, attempts integer, next_attempt_at timestamp with time zone, last_error text, parked_at timestamp with time zone, aggregate_type text, event_type text, payload json, payload_bytes bytea, headers jsonb, created_at timestamp with time zone'),
    ('relays', 'v', 'sink text, lane integer, pid integer, state text, "position" bigint, published bigint, last_error text, last_error_at timestamp with time zone, last_published_at timestamp with time zone'),
    ('replays', 'v', 'id bigint, sink text, since timestamp with time zone, until timestamp with time zone, aggregate_id text, state text, sent bigint, skipped bigint, "position" bigint, last_id bigint, requested_by text, started_at timestamp with time zone, finished_at timestamp with time zone, last_error text'),
    ('lag', 'v', 'sink text, state text, pending bigint, oldest_pending_age interval, parked bigint, oldest_parked_age interval, dead bigint, last_error text, last_error_at timestamp with time zone, pending_estimated boolean'),
    ('captures', 'v', '"table" regclass, aggregate_type text, key text, inserted text, updated text, deleted text, columns text[], enabled text'),
    ('metrics', 'v', 'database text, sink text, state text, pending bigint, oldest_pending_seconds double precision, parked bigint, oldest_parked_seconds double precision, dead bigint, lanes bigint, relays bigint, backing_off bigint, heartbeat_seconds double precision, halted integer, disabled integer, paused integer, off integer, no_worker integer, published_total bigint, unparked_total bigint, bytes_total bigint, batches_total bigint, late_total bigint, errors_outage_total bigint, errors_stuck_total bigint, errors_poison_total bigint, errors_producer_total bigint, errors_internal_total bigint, errors_order_total bigint, parked_retry_total bigint, parked_dead_total bigint, parked_behind_total bigint, delivery_seconds double precision[], delivery_seconds_bucket bigint[], delivery_seconds_sum double precision, delivery_seconds_count bigint, batch_events double precision[], batch_events_bucket bigint[], batch_events_sum bigint, batch_events_count bigint'),
    ('metrics_log', 'v', 'database text, bytes bigint, segments bigint, oldest_segment_seconds double precision, retention_seconds double precision, scheduled_overdue_seconds double precision'),
    ('health', 'v', '"check" text, ok boolean, detail text, hint text')$$,
    'tables and views, their columns and types');

SELECT set_eq(
    $$SELECT c.relname::text, pg_get_expr(c.relpartbound, c.oid) FROM pg_class c
      WHERE c.relnamespace = 'outbox'::regnamespace AND c.relispartition AND c.relkind = 'r'$$,
    $$SELECT 'events_' || k AS a, format('FOR VALUES IN (''%s'')', k) AS b FROM generate_series(0, 15) k$$,
    'the log is a ring of sixteen partitions');

SELECT set_eq(
    $$SELECT p.proname::text, pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid)
      FROM pg_proc p WHERE p.pronamespace = 'outbox'::regnamespace$$,
    $$VALUES
    ('next_id', '', 'bigint'),
    ('current_segment', '', 'smallint'),
    ('new_event_id', '', 'uuid'),
    ('check_event', '', 'trigger'),
    ('check_scheduled', '', 'trigger'),
    ('refuse_truncate', '', 'trigger'),
    ('restore_segment', '', 'trigger'),
    ('skip_row', '', 'trigger'),
    ('inbox_claim', 'consumer text, event_id uuid', 'boolean'),
    ('capture_row', '', 'trigger'),
    ('check_types', 'aggregate_type text, event_type text', 'void'),
    ('capture', '"table" regclass, aggregate_type text, key text, inserted text, updated text, deleted text, columns text[]', 'void'),
    ('uncapture', '"table" regclass', 'void'),
    ('lane_of', 'aggregate_id text, id bigint, lanes integer', 'integer'),
    ('takes', 'events text, aggregate_type text, event_type text', 'boolean'),
    ('kafka_validator', 'options text[], catalog oid', 'void'),
    ('http_validator', 'options text[], catalog oid', 'void'),
    ('on_sink_ddl', '', 'event_trigger'),
    ('pause', 'sink text', 'void'),
    ('resume', 'sink text', 'void'),
    ('forget', 'sink text', 'void'),
    ('test_sink', 'sink text, OUT "check" text, OUT ok boolean, OUT detail text', 'SETOF record'),
    ('live_relays', 'OUT sink_id integer, OUT lane integer, OUT pid integer, OUT state text, OUT "position" bigint, OUT published bigint, OUT last_error text, OUT last_error_at timestamp with time zone, OUT last_published_at timestamp with time zone, OUT last_beat_at timestamp with time zone', 'SETOF record'),
    ('worker_state', 'OUT preloaded boolean, OUT launcher_pid integer, OUT no_worker_slot boolean, OUT publishing boolean, OUT home text, OUT library_version text, OUT left_out boolean', 'record'),
    ('foreign_home', 'home text', 'text'),
    ('backlog', 'sink_id integer, OUT pending bigint, OUT oldest_at timestamp with time zone, OUT estimated boolean', 'record'),
    ('status', 'event_id uuid, OUT sink text, OUT id bigint, OUT state text, OUT detail text, OUT published_after timestamp with time zone, OUT published_before timestamp with time zone', 'SETOF record'),
    ('id_at', 'at timestamp with time zone', 'bigint'),
    ('find_event', 'event_id uuid', 'SETOF outbox.events'),
    ('segment_holders', 'OUT holder text', 'SETOF text'),
    ('wake', '', 'void'),
    ('known_sink', 'sink text', 'integer'),
    ('redrive', 'sink text, event_id uuid', 'bigint'),
    ('discard', 'sink text, event_id uuid, reason text', 'bigint'),
    ('cancel', 'event_id uuid', 'boolean'),
    ('replay', 'sink text, since timestamp with time zone, until timestamp with time zone, aggregate_id text', 'bigint'),
    ('stop_replay', 'id bigint', 'boolean'),
    ('keep_house', 'OUT turned boolean, OUT truncated integer, OUT claims bigint', 'record'),
    ('retention_run', 'OUT turned boolean, OUT truncated integer, OUT claims bigint, OUT kept_for text', 'record'),
    ('must_be_owner', '', 'void'),
    ('grant_writer', 'role text', 'void'),
    ('grant_writer', 'role regrole', 'void'),
    ('grant_monitor', 'role text', 'void'),
    ('grant_monitor', 'role regrole', 'void')
    UNION ALL
    SELECT 'add_event', format('aggregate_id %s, event_type text, payload %s, aggregate_type text, topic text, headers jsonb, '
                               'deliver_at timestamp with time zone, event_id uuid', k, v), 'uuid'
    FROM unnest('{text,bigint,uuid}'::text[]) k, unnest('{text,json,jsonb,bytea}'::text[]) v$$,
    'functions, their arguments and results');

SELECT is(pg_get_function_arguments('outbox.redrive(text, uuid)'::regprocedure), 'sink text, event_id uuid DEFAULT NULL::uuid', 'redrive takes all by default');
SELECT is(pg_get_function_arguments('outbox.replay(text, timestamptz, timestamptz, text)'::regprocedure),
          'sink text, since timestamp with time zone, until timestamp with time zone DEFAULT NULL::timestamp with time zone, aggregate_id text DEFAULT NULL::text',
          'replay goes to the end of the log by default, and takes all keys');
SELECT is_empty(
    $$SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = 'outbox'::regnamespace AND p.proname = 'add_event'
      AND (p.pronargdefaults <> 5 OR p.proisstrict OR p.prosecdef OR p.provolatile <> 'v' OR p.proparallel <> 'u')$$,
    'add_event: five defaults, not strict, the caller''s rights, volatile');

SELECT set_eq($$SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'S'$$,
              ARRAY['events_id_seq', 'turn', 'sinks_sink_id_seq', 'replay_requests_replay_id_seq'], 'sequences');
SELECT results_eq($$SELECT seqcache, seqincrement, seqcycle FROM pg_sequence WHERE seqrelid = 'outbox.events_id_seq'::regclass$$,
                  $$VALUES (1::bigint, 1::bigint, false)$$, 'ids are used in the order in which they are drawn');
SELECT set_eq($$SELECT evtname::text, evtevent::text, evtenabled::text FROM pg_event_trigger WHERE evtname LIKE 'outbox%'$$,
              $$VALUES ('outbox_sink_ddl', 'ddl_command_end', 'A'), ('outbox_sink_drop_start', 'ddl_command_start', 'A'), ('outbox_sink_drop', 'sql_drop', 'A')$$,
              'event triggers, also on for replicas');
SELECT set_eq($$SELECT fdwname::text, fdwhandler::text, fdwvalidator::regproc::text FROM pg_foreign_data_wrapper WHERE fdwname LIKE 'outbox%'$$,
              $$VALUES ('outbox_kafka', '0', 'outbox.kafka_validator'), ('outbox_http', '0', 'outbox.http_validator')$$,
              'the wrappers have no handler: no foreign table can read through them');
SELECT set_eq($$SELECT t.tgname::text, c.relname::text, t.tgenabled::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
                WHERE c.relnamespace = 'outbox'::regnamespace AND NOT t.tgisinternal$$,
              $$SELECT 'check_event' AS a, 'events_' || k AS b, 'A' AS c FROM generate_series(0, 15) k
                UNION ALL SELECT 'refuse_truncate', 'events_' || k, 'O' FROM generate_series(0, 15) k
                UNION ALL VALUES ('check_scheduled', 'scheduled', 'A'), ('restore_segment', 'segments', 'O'), ('skip_row', 'homes', 'R')$$,
              'triggers; the checks also run where rows are applied by replication');

-- ---- what all of them have in common --------------------------------------------------------------------------------------
SELECT is_empty(
    $$SELECT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d
      WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox') AND d.deptype = 'e'
        AND d.classid IN ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_foreign_data_wrapper'::regclass)
        AND NOT (d.classid = 'pg_class'::regclass AND (SELECT relkind FROM pg_class WHERE oid = d.objid) = 'S')
        AND obj_description(d.objid, d.classid::regclass::name) IS NULL$$,
    'every table, view, function and wrapper has a comment');
SELECT is_empty(
    $$SELECT a.attrelid::regclass || '.' || a.attname FROM pg_attribute a
      WHERE a.attrelid = 'outbox.events'::regclass AND a.attnum > 0 AND col_description(a.attrelid, a.attnum) IS NULL$$,
    'every column of outbox.events has a comment');
SELECT is_empty(
    $$SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'outbox'::regnamespace
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
                      AND (d.deptype = 'e' OR d.deptype IN ('i', 'a', 'I', 'P', 'S')))
      UNION ALL
      SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'outbox'::regnamespace
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')$$,
    'everything in the schema is the extension''s');
SELECT is_empty(
    $$SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = 'outbox'::regnamespace
      AND NOT coalesce(p.proconfig, '{}') @> ARRAY['search_path=pg_catalog, pg_temp']
      AND (p.proname NOT IN ('next_id', 'current_segment', 'new_event_id', 'check_event', 'check_scheduled', 'add_event', 'capture_row', 'lane_of', 'takes')
           OR p.prosecdef OR p.prolang <> (SELECT oid FROM pg_language WHERE lanname = 'c'))$$,
    'every function pins its search_path, but for those in C that run once per row');
SELECT is_empty(
    $$SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p', 'S') AND c.relpersistence <> 'p'$$,
    'nothing is unlogged (B60)');
SELECT is_empty(
    $$SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND c.relreplident <> 'f'
      AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)$$,
    'every table has a primary key, or FULL as its replica identity');
SELECT set_eq(
    $$SELECT unnest(extconfig)::regclass::text AS a, unnest(extcondition) AS b FROM pg_extension WHERE extname = 'outbox'$$,
    $$SELECT c.oid::regclass::text AS a, '' AS b FROM pg_class c WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'S') AND c.relname <> 'homes'$$,
    'a dump has the rows of each table but outbox.homes, of each partition, and each sequence');
SELECT is_empty(
    $$SELECT t FROM unnest('{outbox.progress,outbox.counters,outbox.parked_events,outbox.scheduled,outbox.inbox}'::regclass[]) t
      WHERE NOT EXISTS (SELECT FROM pg_class c, unnest(c.reloptions) o WHERE c.oid = t AND o LIKE 'autovacuum_vacuum_scale_factor=%')$$,
    'tables that rows leave are vacuumed sooner than by default (B68)');
SELECT set_eq(
    $$SELECT name, setting, context FROM pg_settings WHERE name LIKE 'outbox.%' AND name NOT IN ('outbox.fault', 'outbox.retry_scale')$$,
    $$VALUES ('outbox.publish', 'on', 'sighup'), ('outbox.poll_interval', '1000', 'sighup'), ('outbox.retention', '604800', 'sighup'),
             ('outbox.inbox_retention', '2592000', 'sighup'), ('outbox.replay_rate', '1000', 'sighup'),
             ('outbox.max_event_size', '900000', 'superuser'), ('outbox.lock_keys', 'off', 'user'), ('outbox.instance', '', 'sighup'),
             ('outbox.traceparent', '', 'user'), ('outbox.tracestate', '', 'user'), ('outbox.baggage', '', 'user')$$,
    'settings, their defaults and where they can be set');
SELECT throws_ok($$SET outbox.publish = off$$, '55P02', NULL, 'what acts on relays cannot be set in a session');
SELECT throws_ok($$SET outbox.lock_key = on$$, '42602', NULL, 'a misspelt setting is an error');

SELECT * FROM finish();
ROLLBACK;
