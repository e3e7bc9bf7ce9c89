-- outbox 0.1.0: install script. Run by CREATE EXTENSION.
\echo Use "CREATE EXTENSION outbox" to load this file. \quit

-- The owner of a schema may put functions beside ours that our own calls could find.
DO LANGUAGE plpgsql $do$
BEGIN
    PERFORM FROM pg_catalog.pg_namespace
        WHERE nspname = 'outbox' AND nspowner <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user);
    IF FOUND THEN
        RAISE EXCEPTION 'there is a schema "outbox" that belongs to somebody else'
            USING ERRCODE = 'duplicate_schema', HINT = 'Drop or rename it; CREATE EXTENSION outbox makes its own.';
    END IF;
END $do$;

-- =====================================================================================================================
-- The log
-- =====================================================================================================================

-- Ids order the log. CACHE 1: with a cache ids would be used later than they are drawn.
CREATE SEQUENCE outbox.events_id_seq AS bigint CACHE 1;
-- The ring of segments has turned this often: events go to segment (turn modulo 16). Moved by setval alone, which
-- is not transactional: a writer sees it at once.
CREATE SEQUENCE outbox.turn AS bigint MINVALUE 0 START 0 CACHE 1;
SELECT pg_catalog.setval('outbox.turn', 0);

-- The functions that run once per row (these three, the trigger functions, lane_of, takes) do without a SET clause: it
-- made an INSERT 60% slower (measured), and they look up nothing by an unqualified name. Every other function has one.
CREATE FUNCTION outbox.next_id() RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'outbox_next_id';
COMMENT ON FUNCTION outbox.next_id() IS 'Default of outbox.events.id: assigns the transaction its id first and draws the event''s id after';

CREATE FUNCTION outbox.current_segment() RETURNS smallint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'outbox_current_segment';
COMMENT ON FUNCTION outbox.current_segment() IS 'Default of outbox.events.segment: the partition that takes new events';

CREATE FUNCTION outbox.new_event_id() RETURNS uuid
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'outbox_new_event_id';
COMMENT ON FUNCTION outbox.new_event_id() IS 'A time-ordered UUID (version 7)';

CREATE TABLE outbox.events (
    id             bigint      NOT NULL DEFAULT outbox.next_id(),
    xid            xid8        NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    event_id       uuid        NOT NULL DEFAULT outbox.new_event_id(),
    aggregate_type text,
    aggregate_id   text,
    event_type     text        NOT NULL,
    payload        json,
    payload_bytes  bytea,
    headers        jsonb,
    topic          text,
    created_at     timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    segment        smallint    NOT NULL DEFAULT outbox.current_segment(),
    PRIMARY KEY (id, segment)
) PARTITION BY LIST (segment);
COMMENT ON TABLE outbox.events IS 'The log: append-only. Write with outbox.add_event or INSERT; retention truncates whole partitions';
COMMENT ON COLUMN outbox.events.id IS 'Order of the log; given by the server';
COMMENT ON COLUMN outbox.events.xid IS 'The writer''s transaction; given by the server';
COMMENT ON COLUMN outbox.events.event_id IS 'The event''s identity for consumers; NULL or absent: a time-ordered UUID. Not checked for uniqueness';
COMMENT ON COLUMN outbox.events.aggregate_type IS 'Kind of the aggregate, [A-Za-z0-9._-]{1,200}; part of the default topic';
COMMENT ON COLUMN outbox.events.aggregate_id IS 'Ordering key and Kafka key; NULL: no key, no order';
COMMENT ON COLUMN outbox.events.event_type IS 'What happened, 1 to 255 printable characters without / * ,';
COMMENT ON COLUMN outbox.events.payload IS 'JSON, sent byte for byte; NULL here and in payload_bytes: a tombstone';
COMMENT ON COLUMN outbox.events.payload_bytes IS 'Any bytes (Avro, Protobuf), instead of payload';
COMMENT ON COLUMN outbox.events.headers IS 'A flat object of strings or nulls';
COMMENT ON COLUMN outbox.events.topic IS 'Overrides the sink''s topic template';
COMMENT ON COLUMN outbox.events.created_at IS 'clock_timestamp() when it was written; given by the server';
COMMENT ON COLUMN outbox.events.segment IS 'The partition; given by the server';

CREATE FUNCTION outbox.check_event() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_check_event';
COMMENT ON FUNCTION outbox.check_event() IS 'Checks an inserted event, sets what is the server''s, and wakes the relays at commit';

CREATE FUNCTION outbox.refuse_truncate() RETURNS trigger
    LANGUAGE c SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_refuse_truncate';
COMMENT ON FUNCTION outbox.refuse_truncate() IS 'Refuses TRUNCATE of the log by hand while events are pending';

-- (xid, id): late events are looked up by their transaction. Every partition must vacuum by itself: aggressive
-- defaults would only burn CPU on a table that has no dead rows.
DO LANGUAGE plpgsql $do$
BEGIN
    FOR k IN 0..15 LOOP
        EXECUTE format('CREATE TABLE outbox.events_%1$s PARTITION OF outbox.events FOR VALUES IN (%1$s)', k);
        EXECUTE format('CREATE INDEX events_%1$s_xid ON outbox.events_%1$s (xid, id)', k);
        EXECUTE format('CREATE TRIGGER check_event BEFORE INSERT ON outbox.events_%s FOR EACH ROW'
                       ' EXECUTE FUNCTION outbox.check_event()', k);
        EXECUTE format('ALTER TABLE outbox.events_%s ENABLE ALWAYS TRIGGER check_event', k);
        EXECUTE format('CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON outbox.events_%s'
                       ' EXECUTE FUNCTION outbox.refuse_truncate()', k);
        EXECUTE format('COMMENT ON TABLE outbox.events_%1$s IS ''Segment %1$s of the log''', k);
    END LOOP;
END $do$;

CREATE TABLE outbox.segments (
    turn         bigint PRIMARY KEY,
    segment      smallint    NOT NULL,
    opened_at    timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    fence        xid8,
    closed_at    timestamptz,
    first_id     bigint,
    last_id      bigint,
    truncated_at timestamptz
);
COMMENT ON TABLE outbox.segments IS 'A row per turn of the ring of segments';
COMMENT ON COLUMN outbox.segments.fence IS 'Transactions from this one on cannot write to the turn; NULL: it is the current one';
INSERT INTO outbox.segments (turn, segment) VALUES (0, 0);

-- =====================================================================================================================
-- Sinks, lanes, progress
-- =====================================================================================================================

CREATE TABLE outbox.sinks (
    sink_id    integer     GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    name       text        NOT NULL UNIQUE,
    epoch      integer     NOT NULL DEFAULT 1,
    lanes      integer     NOT NULL,
    floor      bigint      NOT NULL DEFAULT 0,
    paused     boolean     NOT NULL DEFAULT false,
    halted     text,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    dropped_at timestamptz
);
COMMENT ON TABLE outbox.sinks IS 'A row per sink name ever seen; a position belongs to the name and outlives DROP SERVER for outbox.retention';
COMMENT ON COLUMN outbox.sinks.epoch IS 'Counts the sets of lanes';
COMMENT ON COLUMN outbox.sinks.lanes IS 'Number of lanes in force; the server''s option `lanes` may be ahead of it';
COMMENT ON COLUMN outbox.sinks.floor IS 'Events up to this id are never late: they carry another cluster''s transaction ids';

-- A lane is a row that is locked and never updated.
CREATE TABLE outbox.lanes (
    sink_id integer NOT NULL,
    lane    integer NOT NULL,
    epoch   integer NOT NULL,
    lanes   integer NOT NULL,
    maker   xid8    NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    PRIMARY KEY (sink_id, lane)
);
COMMENT ON TABLE outbox.lanes IS 'A lane of a sink: relays lock the row while they publish, and never update it';

-- Append-only: a lane's newest row says how far it has come. See src/README.md for the predicate.
CREATE TABLE outbox.progress (
    sink_id       integer     NOT NULL,
    epoch         integer     NOT NULL,
    lane          integer     NOT NULL,
    batch         bigint      NOT NULL,
    "position"    bigint      NOT NULL,
    seen          pg_snapshot NOT NULL,
    next_xid      xid8        NOT NULL,
    late_position bigint,
    late_seen     pg_snapshot,
    events        integer     NOT NULL,
    published     bigint      NOT NULL,
    recorded_at   timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    PRIMARY KEY (sink_id, epoch, lane, batch)
);
COMMENT ON TABLE outbox.progress IS 'How far each lane has come: one row per batch, the newest counts';

CREATE TABLE outbox.lane_changes (
    sink_id    integer     PRIMARY KEY,
    lanes      integer     NOT NULL,
    "position" bigint      NOT NULL,
    seen       pg_snapshot NOT NULL,
    next_xid   xid8        NOT NULL,
    since      timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
COMMENT ON TABLE outbox.lane_changes IS 'A change of a sink''s lanes under way: all old lanes stop at this point, there the new ones start';

-- =====================================================================================================================
-- Parked, discarded, inbox
-- =====================================================================================================================

CREATE TABLE outbox.parked_events (
    sink_id         integer     NOT NULL,
    id              bigint      NOT NULL,
    event_id        uuid        NOT NULL,
    aggregate_type  text,
    aggregate_id    text,
    event_type      text        NOT NULL,
    payload         json,
    payload_bytes   bytea,
    headers         jsonb,
    topic           text,
    created_at      timestamptz NOT NULL,
    destination     text        NOT NULL,
    reason          text        NOT NULL CHECK (reason IN ('retry', 'dead', 'behind')),
    attempts        integer     NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    last_error      text,
    parked_at       timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    PRIMARY KEY (sink_id, id)
);
CREATE INDEX parked_events_key ON outbox.parked_events (sink_id, destination, aggregate_id, id);
CREATE INDEX parked_events_due ON outbox.parked_events (sink_id, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
COMMENT ON TABLE outbox.parked_events IS 'Events that could not be delivered, each with its own copy of the event';

CREATE TABLE outbox.discarded (
    sink         text,
    id           bigint,
    event_id     uuid        NOT NULL,
    aggregate_id text,
    topic        text,
    event_type   text,
    action       text        NOT NULL,
    reason       text,
    discarded_by text        NOT NULL,
    discarded_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
CREATE INDEX discarded_event_id ON outbox.discarded (event_id);
COMMENT ON TABLE outbox.discarded IS 'What was discarded or cancelled: by whom, when, why';

CREATE TABLE outbox.inbox (
    consumer   text        NOT NULL,
    event_id   uuid        NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
    PRIMARY KEY (consumer, event_id)
);
COMMENT ON TABLE outbox.inbox IS 'Consumer side: what outbox.inbox_claim has claimed';

-- =====================================================================================================================
-- Writing
-- =====================================================================================================================

DO LANGUAGE plpgsql $do$
DECLARE
    key text;
    value text;
BEGIN
    FOREACH key IN ARRAY ARRAY['text', 'bigint', 'uuid'] LOOP
        FOREACH value IN ARRAY ARRAY['text', 'json', 'jsonb', 'bytea'] LOOP
            EXECUTE format(
                'CREATE FUNCTION outbox.add_event(aggregate_id %s, event_type text, payload %s, aggregate_type text DEFAULT NULL,'
                ' topic text DEFAULT NULL, headers jsonb DEFAULT NULL, deliver_at timestamptz DEFAULT NULL,'
                ' event_id uuid DEFAULT NULL) RETURNS uuid LANGUAGE c VOLATILE PARALLEL UNSAFE'
                ' SET search_path = pg_catalog, pg_temp AS ''MODULE_PATHNAME'', ''outbox_add_event''', key, value);
            EXECUTE format(
                'COMMENT ON FUNCTION outbox.add_event(%s, text, %s, text, text, jsonb, timestamptz, uuid) IS'
                ' ''Write an event in the current transaction; returns its event_id''', key, value);
        END LOOP;
    END LOOP;
END $do$;

CREATE FUNCTION outbox.inbox_claim(consumer text, event_id uuid) RETURNS boolean
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    WITH claimed AS (
        INSERT INTO outbox.inbox (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1)
    SELECT pg_catalog.count(*) > 0 FROM claimed
    $$;
COMMENT ON FUNCTION outbox.inbox_claim(text, uuid) IS
    'True once per consumer and event, in the consumer''s own transaction; false for a duplicate';

CREATE FUNCTION outbox.lane_of(aggregate_id text, id bigint, lanes integer) RETURNS integer
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'outbox_lane_of';
COMMENT ON FUNCTION outbox.lane_of(text, bigint, integer) IS
    'The lane of an event: a hash of its key''s UTF-8 bytes, fixed for ever; events without a key spread by id';

CREATE FUNCTION outbox.takes(events text, aggregate_type text, event_type text) RETURNS boolean
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'outbox_takes';
COMMENT ON FUNCTION outbox.takes(text, text, text) IS 'Whether a sink''s option `events` takes an event';

-- =====================================================================================================================
-- Sinks
-- =====================================================================================================================

CREATE FUNCTION outbox.kafka_validator(options text[], catalog oid) RETURNS void
    LANGUAGE c SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_kafka_validator';
COMMENT ON FUNCTION outbox.kafka_validator(text[], oid) IS 'Checks the options of an outbox_kafka server or user mapping';

CREATE FOREIGN DATA WRAPPER outbox_kafka NO HANDLER VALIDATOR outbox.kafka_validator;
COMMENT ON FOREIGN DATA WRAPPER outbox_kafka IS 'Kafka as a sink of outbox: CREATE SERVER makes one';

-- The sinks of this database: the foreign servers of our wrappers, with what they have in outbox.sinks.
CREATE VIEW outbox.servers AS
SELECT s.oid AS server_oid, s.srvname::text AS name, w.fdwname::text AS wrapper, s.srvowner AS owner,
       (SELECT option_value FROM pg_catalog.pg_options_to_table(s.srvoptions) WHERE option_name = 'home') AS home,
       coalesce((SELECT option_value FROM pg_catalog.pg_options_to_table(s.srvoptions) WHERE option_name = 'lanes'), '1')::integer AS lanes,
       coalesce((SELECT option_value FROM pg_catalog.pg_options_to_table(s.srvoptions) WHERE option_name = 'start'), 'earliest') AS start,
       coalesce((SELECT option_value FROM pg_catalog.pg_options_to_table(s.srvoptions) WHERE option_name = 'events'), '*') AS events
FROM pg_catalog.pg_foreign_server s JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid = s.srvfdw
WHERE w.fdwname IN ('outbox_kafka', 'outbox_http')
  AND EXISTS (SELECT FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
              WHERE d.classid = 'pg_catalog.pg_foreign_data_wrapper'::pg_catalog.regclass AND d.objid = w.oid
                AND d.deptype = 'e' AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND e.extname = 'outbox');
COMMENT ON VIEW outbox.servers IS 'The foreign servers that are sinks';

CREATE FUNCTION outbox.on_sink_ddl() RETURNS event_trigger
    LANGUAGE c SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_on_sink_ddl';
COMMENT ON FUNCTION outbox.on_sink_ddl() IS 'Makes a sink''s lanes in the transaction of its CREATE SERVER, follows RENAME and DROP';

CREATE EVENT TRIGGER outbox_sink_ddl ON ddl_command_end
    WHEN TAG IN ('CREATE SERVER', 'ALTER SERVER', 'DROP SERVER', 'CREATE USER MAPPING', 'ALTER USER MAPPING', 'DROP USER MAPPING')
    EXECUTE FUNCTION outbox.on_sink_ddl();
ALTER EVENT TRIGGER outbox_sink_ddl ENABLE ALWAYS;
-- Before a DROP SERVER: refused while events are pending.
CREATE EVENT TRIGGER outbox_sink_drop_start ON ddl_command_start WHEN TAG IN ('DROP SERVER')
    EXECUTE FUNCTION outbox.on_sink_ddl();
ALTER EVENT TRIGGER outbox_sink_drop_start ENABLE ALWAYS;
-- Drops by CASCADE, DROP OWNED and the like come through here, whatever the command was.
CREATE EVENT TRIGGER outbox_sink_drop ON sql_drop EXECUTE FUNCTION outbox.on_sink_ddl();
ALTER EVENT TRIGGER outbox_sink_drop ENABLE ALWAYS;

CREATE FUNCTION outbox.pause(sink text) RETURNS void
    LANGUAGE c STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_pause';
COMMENT ON FUNCTION outbox.pause(text) IS 'Stop sending to a sink; its events wait';
CREATE FUNCTION outbox.resume(sink text) RETURNS void
    LANGUAGE c STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_resume';
COMMENT ON FUNCTION outbox.resume(text) IS 'Go on sending to a sink that was paused, or halted because it came from another installation';
CREATE FUNCTION outbox.forget(sink text) RETURNS void
    LANGUAGE c STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_forget';
COMMENT ON FUNCTION outbox.forget(text) IS 'Forget the position of a dropped sink''s name: the next sink of that name starts afresh';
CREATE FUNCTION outbox.test_sink(sink text, OUT "check" text, OUT ok boolean, OUT detail text) RETURNS SETOF record
    LANGUAGE c STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_test_sink';
COMMENT ON FUNCTION outbox.test_sink(text) IS 'Reachable, credentials, may write, topic there: a row per check, with what was wrong';

-- =====================================================================================================================
-- Seeing
-- =====================================================================================================================

CREATE FUNCTION outbox.live_relays(OUT sink_id integer, OUT lane integer, OUT pid integer, OUT state text,
        OUT "position" bigint, OUT published bigint, OUT last_error text, OUT last_error_at timestamptz,
        OUT last_published_at timestamptz, OUT last_beat_at timestamptz) RETURNS SETOF record
    LANGUAGE c STABLE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_live_relays';
COMMENT ON FUNCTION outbox.live_relays() IS 'This database''s relays as shared memory has them';

CREATE FUNCTION outbox.worker_state(OUT preloaded boolean, OUT launcher_pid integer, OUT no_worker_slot boolean,
        OUT publishing boolean, OUT home text, OUT library_version text)
    LANGUAGE c STABLE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_worker_state';
COMMENT ON FUNCTION outbox.worker_state() IS 'The extension''s processes as the server has them';

-- How far each lane has come.
CREATE VIEW outbox.lane_progress AS
SELECT s.sink_id, s.name AS sink, l.lane, l.lanes, l.epoch, p.batch, p."position", p.seen, p.next_xid, p.late_position, p.late_seen,
       p.published, p.recorded_at, s.floor
FROM outbox.sinks s
JOIN outbox.lanes l ON l.sink_id = s.sink_id
CROSS JOIN LATERAL (
    SELECT * FROM outbox.progress p
    WHERE p.sink_id = l.sink_id AND p.epoch = l.epoch AND p.lane = l.lane ORDER BY p.batch DESC LIMIT 1) p
WHERE s.dropped_at IS NULL;
COMMENT ON VIEW outbox.lane_progress IS 'The newest progress row of each lane of each sink';

-- The predicate of the log, in full: what a lane has not published yet.
CREATE VIEW outbox.pending AS
SELECT p.sink, p.lane, e.id, e.xid, e.event_id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.payload_bytes,
       e.headers, e.topic, e.created_at
FROM outbox.lane_progress p
JOIN outbox.servers v ON v.name = p.sink
CROSS JOIN LATERAL (
    SELECT * FROM outbox.events n WHERE n.id > p."position"
    UNION ALL
    SELECT * FROM outbox.events l
    WHERE l.xid >= pg_catalog.pg_snapshot_xmin(p.seen) AND l.id <= p."position" AND l.id > p.floor
      AND NOT pg_catalog.pg_visible_in_snapshot(l.xid, p.seen)
      AND NOT coalesce(l.id <= p.late_position AND pg_catalog.pg_visible_in_snapshot(l.xid, p.late_seen), false)) e
WHERE outbox.lane_of(e.aggregate_id, e.id, p.lanes) = p.lane
  AND outbox.takes(v.events, e.aggregate_type, e.event_type);
COMMENT ON VIEW outbox.pending IS 'The pending events per sink';

CREATE VIEW outbox.parked AS
SELECT s.name AS sink, p.id, p.event_id, p.aggregate_id, p.destination AS topic, p.reason, p.attempts, p.next_attempt_at,
       p.last_error, p.parked_at, p.aggregate_type, p.event_type, p.payload, p.payload_bytes, p.headers, p.created_at
FROM outbox.parked_events p JOIN outbox.sinks s USING (sink_id);
COMMENT ON VIEW outbox.parked IS 'Events that a sink could not take: why, how often tried, when next';
