-- outbox 0.1.0: install script. Run by CREATE EXTENSION.
\echo Use "CREATE EXTENSION outbox" to load this file. \quit

-- What is called here without a schema is PostgreSQL's, whatever lies in the schema that the extension is created in.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Whoever may put a function beside ours could have it called in our place.
DO LANGUAGE plpgsql $do$
DECLARE
    wrong text;
BEGIN
    SELECT CASE
        WHEN NOT r.rolsuper THEN 'that does not belong to a superuser'
        -- One that was made a moment ago, by CREATE EXTENSION, nobody else sees yet, and below the right is taken away.
        WHEN pg_catalog.age(n.xmin) > 0 AND EXISTS (SELECT FROM pg_catalog.aclexplode(n.nspacl) a WHERE a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner)
            THEN 'in which others may create objects'
        WHEN EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass
                     AND d.refobjid = n.oid AND d.classid <> 'pg_catalog.pg_extension'::pg_catalog.regclass)
            THEN 'with objects in it'
        END INTO wrong
    FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner WHERE n.nspname = 'outbox';
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'there is a schema "outbox" %', wrong
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

-- The functions that run once per row (these three, the trigger functions, add_event, lane_of, takes) do without a SET
-- clause: it made an INSERT 60% slower (measured), and they look up nothing by an unqualified name. Every other function has one.
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

-- A row comes with its fence only from a dump. It replaces what this script inserted, and the fence, another cluster's
-- transaction id, becomes this one's.
CREATE FUNCTION outbox.restore_segment() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    DELETE FROM outbox.segments WHERE turn = NEW.turn;
    IF NEW.fence IS NOT NULL THEN
        NEW.fence := pg_catalog.pg_current_xact_id();
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION outbox.restore_segment() IS 'Lets a dump bring its rows of outbox.segments';
CREATE TRIGGER restore_segment BEFORE INSERT ON outbox.segments FOR EACH ROW EXECUTE FUNCTION outbox.restore_segment();

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
    gone       text,
    gone_url   text,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    dropped_at timestamptz
);
COMMENT ON TABLE outbox.sinks IS 'A row per sink name ever seen; a position belongs to the name and outlives DROP SERVER for outbox.retention';
COMMENT ON COLUMN outbox.sinks.epoch IS 'Counts the sets of lanes';
COMMENT ON COLUMN outbox.sinks.lanes IS 'Number of lanes in force; the server''s option `lanes` may be ahead of it';
COMMENT ON COLUMN outbox.sinks.gone IS 'What the endpoint said that answered 410; until it is resumed, or has another url than gone_url, nothing is sent';
COMMENT ON COLUMN outbox.sinks.floor IS 'Events up to this id are never late: they carry another cluster''s transaction ids';

-- The homes that servers of this database have had here. No dump has it, and no subscriber: a server with one of these homes
-- in a cluster of another system identifier came with the files of the database, as pg_upgrade carries them over.
CREATE TABLE outbox.homes (home text PRIMARY KEY);
COMMENT ON TABLE outbox.homes IS 'What the option `home` of this database''s sinks has been; not in dumps, so it tells pg_upgrade from a restore';
CREATE FUNCTION outbox.skip_row() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$ BEGIN RETURN NULL; END $$;
COMMENT ON FUNCTION outbox.skip_row() IS 'Leaves out what logical replication brings';
CREATE TRIGGER skip_row BEFORE INSERT OR UPDATE OR DELETE ON outbox.homes FOR EACH ROW EXECUTE FUNCTION outbox.skip_row();
ALTER TABLE outbox.homes ENABLE REPLICA TRIGGER skip_row;

-- A lane is a row that is locked and never updated.
CREATE TABLE outbox.lanes (
    sink_id integer NOT NULL,
    lane    integer NOT NULL,
    epoch   integer NOT NULL,
    lanes   integer NOT NULL,
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
    requests      bigint[],
    PRIMARY KEY (sink_id, epoch, lane, batch)
);
-- Relays delete old rows in bulk. Waiting for a fifth of the table (the default) would keep it several times as large as
-- its live rows; a fixed number of dead ones keeps it small, and VACUUM of so small a table costs next to nothing.
ALTER TABLE outbox.progress SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000);
COMMENT ON TABLE outbox.progress IS 'How far each lane has come: one row per batch, the newest counts';
COMMENT ON COLUMN outbox.progress.requests IS
    'Of a webhook with the option batch: the ids of the events in each of the next requests, with a 0 behind each request; fixed before they are sent';

CREATE TABLE outbox.lane_changes (
    sink_id    integer     PRIMARY KEY,
    lanes      integer     NOT NULL,
    "position" bigint      NOT NULL,
    seen       pg_snapshot NOT NULL,
    next_xid   xid8        NOT NULL,
    since      timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
COMMENT ON TABLE outbox.lane_changes IS 'A change of a sink''s lanes under way: all old lanes stop at this point, there the new ones start';

-- Relays count in memory and add it here every three seconds and when they end, so a crash loses three seconds of counts at most;
-- what was published is in outbox.progress, exactly. A lane that a change of lanes has done away with keeps its row: a sink's counts
-- are those of all its rows, and grow until outbox.forget.
CREATE TABLE outbox.counters (
    sink_id          integer  NOT NULL,
    lane             integer  NOT NULL,
    published        bigint   NOT NULL DEFAULT 0,
    unparked         bigint   NOT NULL DEFAULT 0,
    bytes            bigint   NOT NULL DEFAULT 0,
    late             bigint   NOT NULL DEFAULT 0,
    errors_outage    bigint   NOT NULL DEFAULT 0,
    errors_stuck     bigint   NOT NULL DEFAULT 0,
    errors_poison    bigint   NOT NULL DEFAULT 0,
    errors_producer  bigint   NOT NULL DEFAULT 0,
    errors_internal  bigint   NOT NULL DEFAULT 0,
    errors_order     bigint   NOT NULL DEFAULT 0,
    parked_retry     bigint   NOT NULL DEFAULT 0,
    parked_dead      bigint   NOT NULL DEFAULT 0,
    parked_behind    bigint   NOT NULL DEFAULT 0,
    delivery_us      bigint   NOT NULL DEFAULT 0,
    delivery_buckets bigint[] NOT NULL DEFAULT '{}',
    batch_events     bigint   NOT NULL DEFAULT 0,
    batch_buckets    bigint[] NOT NULL DEFAULT '{}',
    counted_at       timestamptz,
    PRIMARY KEY (sink_id, lane)
);
-- Updated all the time, and small: as for outbox.progress.
ALTER TABLE outbox.counters SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000);
COMMENT ON TABLE outbox.counters IS 'What the relays of each lane have counted; outbox.metrics shows it';
COMMENT ON COLUMN outbox.counters.published IS 'Delivered by earlier sets of lanes; those in force have it in outbox.progress';
COMMENT ON COLUMN outbox.counters.unparked IS 'Delivered after they had been parked; not in outbox.progress';
COMMENT ON COLUMN outbox.counters.errors_order IS 'Batches that broke a key''s order, which must never happen';
COMMENT ON COLUMN outbox.counters.delivery_buckets IS 'Events by the time from created_at to the acknowledgement, not cumulative; bounds as in outbox.metrics';
COMMENT ON COLUMN outbox.counters.batch_buckets IS 'Batches by their delivered events, likewise';

-- =====================================================================================================================
-- Parked, discarded, scheduled, inbox
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
-- By a hash: keys can be longer than a btree's entries may be. With the id, since all of them may be of one key.
CREATE INDEX parked_events_key ON outbox.parked_events (pg_catalog.hashtextextended(aggregate_id, 0), id);
CREATE INDEX parked_events_event_id ON outbox.parked_events (event_id);
-- In trouble it grows and empties again, with an update per attempt: as for outbox.progress.
ALTER TABLE outbox.parked_events SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 500);
CREATE INDEX parked_events_due ON outbox.parked_events (sink_id, next_attempt_at, id) WHERE next_attempt_at IS NOT NULL;
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
-- Has no key; rows may be deleted by hand even where a publication has all tables.
ALTER TABLE outbox.discarded REPLICA IDENTITY FULL;
COMMENT ON TABLE outbox.discarded IS 'What was discarded or cancelled: by whom, when, why';
COMMENT ON COLUMN outbox.discarded.sink IS 'The sink that the event was discarded for; NULL: it was cancelled before it was due';
COMMENT ON COLUMN outbox.discarded.action IS 'discarded or cancelled';
COMMENT ON COLUMN outbox.discarded.discarded_by IS 'session_user';

CREATE TABLE outbox.scheduled (
    id             bigint      NOT NULL DEFAULT outbox.next_id() PRIMARY KEY,
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
    deliver_at     timestamptz NOT NULL
);
CREATE INDEX scheduled_due ON outbox.scheduled (deliver_at, id);
CREATE INDEX scheduled_event_id ON outbox.scheduled (event_id);
-- Every row is deleted once: a queue, as for outbox.progress.
ALTER TABLE outbox.scheduled SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 1000);
COMMENT ON TABLE outbox.scheduled IS 'Events that wait for their time: then they move to outbox.events with a new id. Columns as there';
COMMENT ON COLUMN outbox.scheduled.deliver_at IS 'When the event becomes an ordinary one';

CREATE FUNCTION outbox.check_scheduled() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_check_scheduled';
COMMENT ON FUNCTION outbox.check_scheduled() IS 'As outbox.check_event, for outbox.scheduled';
CREATE TRIGGER check_scheduled BEFORE INSERT ON outbox.scheduled FOR EACH ROW EXECUTE FUNCTION outbox.check_scheduled();
ALTER TABLE outbox.scheduled ENABLE ALWAYS TRIGGER check_scheduled;

CREATE TABLE outbox.inbox (
    consumer   text        NOT NULL,
    event_id   uuid        NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
    PRIMARY KEY (consumer, event_id)
);
CREATE INDEX inbox_claimed_at ON outbox.inbox (claimed_at);
ALTER TABLE outbox.inbox SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE outbox.inbox IS 'Consumer side: what outbox.inbox_claim has claimed; deleted outbox.inbox_retention later';

-- =====================================================================================================================
-- Replays
-- =====================================================================================================================

-- A replay is an older position. Its row is updated by every slice, within its page: none of what changes is indexed.
CREATE TABLE outbox.replay_requests (
    replay_id    bigint      GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    sink_id      integer     NOT NULL,
    since        timestamptz NOT NULL,
    until        timestamptz NOT NULL,
    aggregate_id text,
    "position"   bigint      NOT NULL,
    last_id      bigint      NOT NULL,
    sent         bigint      NOT NULL DEFAULT 0,
    skipped      bigint      NOT NULL DEFAULT 0,
    last_error   text,
    requested_by text        NOT NULL DEFAULT session_user,
    started_at   timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    finished_at  timestamptz,
    stopped      boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 20);
COMMENT ON TABLE outbox.replay_requests IS 'A row per replay: what is to be sent again, and how far it has come';
COMMENT ON COLUMN outbox.replay_requests.last_id IS 'The last id that may belong to it';

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
                ' AS ''MODULE_PATHNAME'', ''outbox_add_event''', key, value);
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
-- Capture: an event for each row changed
-- =====================================================================================================================

-- Runs with the rights of whoever changes the row (src/api/capture.cpp), once per row.
CREATE FUNCTION outbox.capture_row() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_capture_row';
COMMENT ON FUNCTION outbox.capture_row() IS 'The trigger that outbox.capture makes: adds an event for a changed row';

CREATE FUNCTION outbox.check_types(aggregate_type text, event_type text) RETURNS void
    LANGUAGE c STABLE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_check_types';
COMMENT ON FUNCTION outbox.check_types(text, text) IS 'An error for what no event may have as its types';

-- With the caller's rights: CREATE TRIGGER asks for TRIGGER on the table and EXECUTE on outbox.capture_row. The trigger is the
-- table's: a dump has it, and DROP TABLE takes it along. What it captures stands in its arguments, by name, as a dump needs it.
-- Its name comes before those of most other triggers: what they do to further rows is told after what they were called for.
CREATE FUNCTION outbox.capture("table" regclass, aggregate_type text, key text, inserted text DEFAULT 'inserted',
        updated text DEFAULT 'updated', deleted text DEFAULT 'deleted', columns text[] DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    wanted text;
    types text[] := ARRAY[inserted, updated, deleted];
    arguments text;
BEGIN
    IF "table" IS NULL OR key IS NULL THEN
        RAISE EXCEPTION 'table and key must be given' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF (SELECT c.relnamespace = 'outbox'::regnamespace FROM pg_class c WHERE c.oid = "table") THEN
        RAISE EXCEPTION 'tables of outbox cannot be captured' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF array_remove(types, NULL) = '{}' OR columns = '{}' THEN
        RAISE EXCEPTION 'nothing is left to capture' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'NULL for an event type leaves that operation out, NULL for columns takes all.';
    END IF;
    FOREACH wanted IN ARRAY array_remove(types, NULL) LOOP
        PERFORM outbox.check_types(capture.aggregate_type, wanted);
    END LOOP;
    FOREACH wanted IN ARRAY key || coalesce(columns, '{}') LOOP
        PERFORM FROM pg_attribute a
            WHERE a.attrelid = "table" AND a.attnum > 0 AND NOT a.attisdropped AND a.attname = wanted AND a.attgenerated <> 'v';
        IF NOT FOUND THEN
            RAISE EXCEPTION 'table % has no column "%" that can be captured', "table", wanted USING ERRCODE = 'undefined_column';
        END IF;
    END LOOP;
    IF (SELECT count(DISTINCT c) < count(*) FROM unnest(columns) c) THEN
        RAISE EXCEPTION 'a column is named twice' USING ERRCODE = 'duplicate_column';
    END IF;
    IF EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = "table" AND t.tgname = '_outbox_capture' AND t.tgparentid <> 0) THEN
        RAISE EXCEPTION 'table % is captured with the partitioned table that it is a partition of', "table" USING ERRCODE = 'wrong_object_type';
    END IF;
    -- An empty argument: none.
    SELECT string_agg(format('%L', coalesce(a, '')), ', ' ORDER BY n) INTO arguments
        FROM unnest(ARRAY[aggregate_type, key] || types || columns) WITH ORDINALITY x(a, n);
    -- An UPDATE of the key is a deletion and an insertion.
    EXECUTE format('CREATE OR REPLACE TRIGGER _outbox_capture AFTER %s ON %s FOR EACH ROW EXECUTE FUNCTION outbox.capture_row(%s)',
        concat_ws(' OR ', CASE WHEN inserted IS NOT NULL THEN 'INSERT' END, 'UPDATE', CASE WHEN deleted IS NOT NULL THEN 'DELETE' END),
        "table", arguments);
END $$;
COMMENT ON FUNCTION outbox.capture(regclass, text, text, text, text, text, text[]) IS
    'From now on each row changed in the table adds an event, in the transaction of the change; called again it replaces what it made';

CREATE FUNCTION outbox.uncapture("table" regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    parent oid := (SELECT t.tgparentid FROM pg_trigger t WHERE t.tgrelid = "table" AND t.tgname = '_outbox_capture');
BEGIN
    IF parent IS NULL THEN
        RAISE EXCEPTION 'table % is not captured', "table" USING ERRCODE = 'undefined_object', HINT = 'outbox.captures lists those that are.';
    ELSIF parent <> 0 THEN
        RAISE EXCEPTION 'table % is captured with the partitioned table that it is a partition of', "table" USING ERRCODE = 'wrong_object_type';
    END IF;
    EXECUTE format('DROP TRIGGER _outbox_capture ON %s', "table");
END $$;
COMMENT ON FUNCTION outbox.uncapture(regclass) IS 'Takes away what outbox.capture made; the table''s owner may';

CREATE VIEW outbox.captures AS
SELECT t.tgrelid::regclass AS "table", nullif(x.a[1], '') AS aggregate_type, x.a[2] AS key, nullif(x.a[3], '') AS inserted,
       nullif(x.a[4], '') AS updated, nullif(x.a[5], '') AS deleted, nullif(x.a[6:], '{}') AS columns,
       CASE t.tgenabled WHEN 'O' THEN 'on' WHEN 'A' THEN 'always' WHEN 'R' THEN 'on replicas' ELSE 'off' END AS enabled
FROM pg_catalog.pg_trigger t
CROSS JOIN LATERAL (
    -- The arguments lie one behind the other, each with a zero byte at its end.
    SELECT pg_catalog.array_agg(pg_catalog.convert_from(pg_catalog.decode(m.m[1], 'hex'), pg_catalog.getdatabaseencoding()) COLLATE pg_catalog."default"
                                ORDER BY m.n) AS a
    FROM pg_catalog.regexp_matches(pg_catalog.encode(t.tgargs, 'hex'), '((?:(?!00)[0-9a-f]{2})*)00', 'g') WITH ORDINALITY m(m, n)) x
WHERE t.tgfoid = 'outbox.capture_row'::regproc AND t.tgparentid = 0;
COMMENT ON VIEW outbox.captures IS 'The tables that outbox.capture captures';

-- =====================================================================================================================
-- Sinks
-- =====================================================================================================================

CREATE FUNCTION outbox.kafka_validator(options text[], catalog oid) RETURNS void
    LANGUAGE c SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_kafka_validator';
COMMENT ON FUNCTION outbox.kafka_validator(text[], oid) IS 'Checks the options of an outbox_kafka server or user mapping';

CREATE FOREIGN DATA WRAPPER outbox_kafka NO HANDLER VALIDATOR outbox.kafka_validator;
COMMENT ON FOREIGN DATA WRAPPER outbox_kafka IS 'Kafka as a sink of outbox: CREATE SERVER makes one';

CREATE FUNCTION outbox.http_validator(options text[], catalog oid) RETURNS void
    LANGUAGE c SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_http_validator';
COMMENT ON FUNCTION outbox.http_validator(text[], oid) IS 'Checks the options of an outbox_http server or user mapping';

CREATE FOREIGN DATA WRAPPER outbox_http NO HANDLER VALIDATOR outbox.http_validator;
COMMENT ON FOREIGN DATA WRAPPER outbox_http IS 'An HTTP endpoint (webhooks) as a sink of outbox: CREATE SERVER makes one';

-- The sinks of this database: the foreign servers of our wrappers, with what they have in outbox.sinks.
CREATE VIEW outbox.servers AS
SELECT s.oid AS server_oid, s.srvname::text COLLATE pg_catalog."default" AS name, w.fdwname::text COLLATE pg_catalog."default" AS wrapper,
       s.srvowner AS owner,
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
    LANGUAGE c SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_pause';
COMMENT ON FUNCTION outbox.pause(text) IS 'Stop sending to a sink; its events wait';
CREATE FUNCTION outbox.resume(sink text) RETURNS void
    LANGUAGE c SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_resume';
COMMENT ON FUNCTION outbox.resume(text) IS 'Go on sending to a sink that was paused, halted because it came from another installation, or disabled by an answer 410; what backs off is tried at once';
CREATE FUNCTION outbox.forget(sink text) RETURNS void
    LANGUAGE c SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_forget';
COMMENT ON FUNCTION outbox.forget(text) IS 'Forget the position of a dropped sink''s name: the next sink of that name starts afresh';
CREATE FUNCTION outbox.test_sink(sink text, OUT "check" text, OUT ok boolean, OUT detail text) RETURNS SETOF record
    LANGUAGE c SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_test_sink';
COMMENT ON FUNCTION outbox.test_sink(text) IS 'Reachable, credentials, may write: a row per check, with what was wrong; an HTTP sink sends one event of the type outbox.test';

-- =====================================================================================================================
-- Seeing
-- =====================================================================================================================

CREATE FUNCTION outbox.live_relays(OUT sink_id integer, OUT lane integer, OUT pid integer, OUT state text,
        OUT "position" bigint, OUT published bigint, OUT last_error text, OUT last_error_at timestamptz,
        OUT last_published_at timestamptz, OUT last_beat_at timestamptz) RETURNS SETOF record
    LANGUAGE c STABLE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_live_relays';
COMMENT ON FUNCTION outbox.live_relays() IS 'This database''s relays as shared memory has them';

CREATE FUNCTION outbox.worker_state(OUT preloaded boolean, OUT launcher_pid integer, OUT no_worker_slot boolean,
        OUT publishing boolean, OUT home text, OUT library_version text, OUT left_out boolean)
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

CREATE FUNCTION outbox.foreign_home(home text) RETURNS text
    LANGUAGE c STABLE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_foreign_home';
COMMENT ON FUNCTION outbox.foreign_home(text) IS 'Why a sink with this option `home` does not publish here; NULL: it is at home';

-- Counts what is pending for a sink, late events and new ones, in one pass for all its lanes. The settings pin the shape of its plan: by
-- the primary key from the lowest position on, and the late ones by their transaction. Those are what `seen` has as running, and
-- of what begins at its xmax what had begun when all up to the position was read. (Not all from its xmin on: while a transaction
-- stays open for hours each look would pass by what was written since. OFFSET 0: by the index on xid, whatever the statistics say.)
-- Of a long backlog the first two million ids are counted and the rest is taken to be like them, unless the sink takes none of these:
-- who asks every few seconds must not scan ten million.
CREATE FUNCTION outbox.backlog(sink_id integer, OUT pending bigint, OUT oldest_at timestamptz, OUT estimated boolean)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
    AS $$
    WITH lane AS MATERIALIZED (
        SELECT p.*, v.events FROM outbox.lane_progress p JOIN outbox.servers v ON v.name = p.sink WHERE p.sink_id = $1),
    sink AS MATERIALIZED (
        SELECT min(l."position") AS lowest, max(l."position") AS highest, max(l.lanes) AS lanes, max(l.events) AS events,
               array_agg(l."position" ORDER BY l.lane) AS positions, max(l.lanes) = 1 AND max(l.events) = '*' AS takes_all,
               min(l."position") + 2000000 AS counted_to, (SELECT max(n.id) FROM outbox.events n) AS last
        FROM lane l HAVING count(*) > 0),
    -- One lane that takes everything: the index alone can be enough, and the oldest event is the first.
    plain AS (
        SELECT (SELECT count(*) FROM outbox.events n WHERE n.id > s.lowest AND n.id <= s.counted_to) AS pending,
               (SELECT n.created_at FROM outbox.events n WHERE n.id > s.lowest ORDER BY n.id LIMIT 1) AS oldest_at
        FROM sink s WHERE s.takes_all),
    chosen AS (
        SELECT count(*) AS pending, min(n.created_at) AS oldest_at FROM sink s, outbox.events n
        WHERE NOT s.takes_all AND n.id > s.lowest AND n.id <= s.counted_to
          AND (s.lanes = 1 OR n.id > s.highest OR n.id > s.positions[1 + outbox.lane_of(n.aggregate_id, n.id, s.lanes)])
          AND (s.events = '*' OR outbox.takes(s.events, n.aggregate_type, n.event_type))),
    counted AS MATERIALIZED (
        SELECT sum(e.pending) AS pending, min(e.oldest_at) AS oldest_at FROM (SELECT * FROM plain UNION ALL SELECT * FROM chosen) e),
    rest AS (
        SELECT count(*) AS pending, min(n.created_at) AS oldest_at FROM sink s, outbox.events n
        WHERE (SELECT c.pending FROM counted c) = 0 AND n.id > s.counted_to
          AND (s.lanes = 1 OR n.id > s.highest OR n.id > s.positions[1 + outbox.lane_of(n.aggregate_id, n.id, s.lanes)])
          AND (s.events = '*' OR outbox.takes(s.events, n.aggregate_type, n.event_type))),
    guess AS (
        SELECT c.pending * (s.last - s.lowest) / (s.counted_to - s.lowest) AS pending, NULL::timestamptz AS oldest_at
        FROM sink s, counted c WHERE c.pending > 0 AND s.last > s.counted_to),
    late AS (
        SELECT count(*) AS pending, min(o.created_at) AS oldest_at FROM lane l CROSS JOIN LATERAL (
            SELECT r.* FROM pg_snapshot_xip(l.seen) x (xid), LATERAL (SELECT * FROM outbox.events w WHERE w.xid = x.xid OFFSET 0) r
            UNION ALL
            (SELECT * FROM outbox.events w WHERE w.xid >= pg_snapshot_xmax(l.seen) AND w.xid < l.next_xid OFFSET 0)) o
        WHERE o.id <= l."position" AND o.id > l.floor
          AND NOT coalesce(o.id <= l.late_position AND pg_visible_in_snapshot(o.xid, l.late_seen), false)
          AND (l.lanes = 1 OR outbox.lane_of(o.aggregate_id, o.id, l.lanes) = l.lane)
          AND (l.events = '*' OR outbox.takes(l.events, o.aggregate_type, o.event_type)))
    SELECT coalesce(sum(e.pending) FILTER (WHERE e.part <> 'counted' OR NOT g.estimated), 0)::bigint, min(e.oldest_at), g.estimated
    FROM (SELECT 'counted' AS part, * FROM counted UNION ALL SELECT 'rest', * FROM rest UNION ALL SELECT 'guess', * FROM guess
          UNION ALL SELECT 'late', * FROM late) e,
         (SELECT EXISTS (SELECT FROM guess) AS estimated) g
    GROUP BY g.estimated
    $$;
COMMENT ON FUNCTION outbox.backlog(integer) IS 'How many events are pending for a sink (estimated when these are millions), and when the oldest was written';

-- A relay that is not there yet is starting; if it does not come within half a minute there is none for it.
CREATE VIEW outbox.relays AS
SELECT v.name AS sink, l.lane, r.pid,
       CASE WHEN v.home IS DISTINCT FROM w.home OR s.halted IS NOT NULL THEN 'halted'
            WHEN r.pid IS NULL AND (NOT w.preloaded OR w.launcher_pid IS NULL) THEN 'no_worker'
            WHEN NOT w.publishing THEN 'off'
            WHEN s.paused THEN 'paused'
            WHEN r.pid IS NULL AND (w.no_worker_slot OR r.sink_id IS NULL
                AND greatest(s.created_at, pg_catalog.pg_postmaster_start_time()) < pg_catalog.clock_timestamp() - interval '30 seconds')
                THEN 'no_worker'
            -- What has just been switched on again the relay still has as off.
            WHEN r.pid IS NULL OR r.state IN ('stopping', 'off', 'paused', 'halted') THEN 'starting'
            ELSE r.state END AS state,
       greatest(p."position", CASE WHEN r.pid IS NOT NULL THEN r."position" END) AS "position",
       p.published, r.last_error, r.last_error_at, r.last_published_at
FROM outbox.servers v
JOIN outbox.sinks s ON s.name = v.name AND s.dropped_at IS NULL
JOIN outbox.lanes l ON l.sink_id = s.sink_id
JOIN outbox.lane_progress p ON p.sink_id = l.sink_id AND p.lane = l.lane
CROSS JOIN outbox.worker_state() w
LEFT JOIN outbox.live_relays() r ON r.sink_id = l.sink_id AND r.lane = l.lane;
COMMENT ON VIEW outbox.relays IS 'A row per lane: its relay as it is now';
COMMENT ON COLUMN outbox.relays.pid IS 'The relay''s process, as in pg_stat_activity; NULL: none';
COMMENT ON COLUMN outbox.relays.state IS 'As in outbox.lag';
COMMENT ON COLUMN outbox.relays."position" IS 'All events up to this id were handled, but for those of transactions that were still open';
COMMENT ON COLUMN outbox.relays.published IS 'Events that this lane has delivered';
COMMENT ON COLUMN outbox.relays.last_error IS 'What is wrong now; NULL once it is over';

CREATE VIEW outbox.lag AS
SELECT v.name AS sink,
       CASE WHEN v.home IS DISTINCT FROM w.home OR s.halted IS NOT NULL THEN 'halted' ELSE coalesce(r.state, 'starting') END AS state,
       coalesce(b.pending, 0) AS pending,
       greatest(coalesce(pg_catalog.clock_timestamp() - b.oldest_at, interval '0'), interval '0') AS oldest_pending_age,
       k.parked,
       greatest(coalesce(pg_catalog.clock_timestamp() - k.oldest_at, interval '0'), interval '0') AS oldest_parked_age,
       k.dead,
       coalesce(s.halted, outbox.foreign_home(v.home), r.last_error) AS last_error,
       CASE WHEN coalesce(s.halted, outbox.foreign_home(v.home)) IS NULL THEN r.last_error_at END AS last_error_at,
       coalesce(b.estimated, false) AS pending_estimated
FROM outbox.servers v
LEFT JOIN outbox.sinks s ON s.name = v.name AND s.dropped_at IS NULL
CROSS JOIN outbox.worker_state() w
LEFT JOIN LATERAL outbox.backlog(s.sink_id) b ON true
CROSS JOIN LATERAL (
    SELECT pg_catalog.count(*) FILTER (WHERE p.reason <> 'dead') AS parked, pg_catalog.count(*) FILTER (WHERE p.reason = 'dead') AS dead,
           min(p.parked_at) FILTER (WHERE p.reason <> 'dead') AS oldest_at
    FROM outbox.parked_events p WHERE p.sink_id = s.sink_id) k
CROSS JOIN LATERAL (
    -- The lane in the worst state speaks for the sink.
    SELECT (pg_catalog.array_agg(q.state ORDER BY pg_catalog.array_position(
               ARRAY['halted', 'disabled', 'no_worker', 'backing_off', 'off', 'paused', 'starting', 'running', 'idle'], q.state)))[1] AS state,
           (pg_catalog.array_agg(q.last_error ORDER BY q.last_error_at DESC NULLS LAST))[1] AS last_error,
           pg_catalog.max(q.last_error_at) AS last_error_at
    FROM outbox.relays q WHERE q.sink = v.name) r;
COMMENT ON VIEW outbox.lag IS 'A row per sink: its state and what waits for it';
COMMENT ON COLUMN outbox.lag.state IS 'running, idle, starting, backing_off (the sink cannot be reached), paused (outbox.pause), off (outbox.publish), halted (the sink belongs to another installation), disabled (an option cannot be used, or the endpoint answered 410), no_worker';
COMMENT ON COLUMN outbox.lag.pending IS 'Committed events that the sink has still to get; what is parked is not among them';
COMMENT ON COLUMN outbox.lag.oldest_pending_age IS '0 when none is pending';
COMMENT ON COLUMN outbox.lag.parked IS 'Parked events that will be sent by themselves; dead ones are not among them';
COMMENT ON COLUMN outbox.lag.dead IS 'Parked events that wait for outbox.redrive or outbox.discard';
COMMENT ON COLUMN outbox.lag.last_error IS 'What is wrong now; NULL once it is over';

-- A row per sink with names as Prometheus has them: what ends in _total and the histograms only grows, all else is as it is now.
-- A histogram is what Prometheus' exporters take: upper bounds, and beside them how many values each bound covers, sum, count.
CREATE VIEW outbox.metrics AS
WITH bound AS (
    SELECT '{0.001,0.0025,0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300}'::double precision[] AS delivery,
           '{1,2,5,10,20,50,100,200,500,1000,2000,5000,10000}'::double precision[] AS batch)
SELECT pg_catalog.current_database()::text COLLATE pg_catalog."default" AS database, l.sink, l.state,
       l.pending, extract(epoch FROM l.oldest_pending_age)::double precision AS oldest_pending_seconds,
       l.parked, extract(epoch FROM l.oldest_parked_age)::double precision AS oldest_parked_seconds, l.dead,
       r.lanes, r.relays, r.backing_off, b.heartbeat_seconds,
       (l.state = 'halted')::integer AS halted, (l.state = 'disabled')::integer AS disabled, (l.state = 'paused')::integer AS paused,
       (l.state = 'off')::integer AS off, (l.state = 'no_worker')::integer AS no_worker,
       (p.published + c.published + c.unparked)::bigint AS published_total, c.unparked AS unparked_total, c.bytes AS bytes_total,
       n.batches AS batches_total, c.late AS late_total,
       c.errors_outage AS errors_outage_total, c.errors_stuck AS errors_stuck_total, c.errors_poison AS errors_poison_total,
       c.errors_producer AS errors_producer_total, c.errors_internal AS errors_internal_total, c.errors_order AS errors_order_total,
       c.parked_retry AS parked_retry_total, c.parked_dead AS parked_dead_total, c.parked_behind AS parked_behind_total,
       bound.delivery AS delivery_seconds, d.cumulative AS delivery_seconds_bucket,
       (c.delivery_us / 1000000.0)::double precision AS delivery_seconds_sum, d.deliveries AS delivery_seconds_count,
       bound.batch AS batch_events, n.cumulative AS batch_events_bucket, c.batch_events AS batch_events_sum, n.batches AS batch_events_count
FROM outbox.lag l
CROSS JOIN bound
LEFT JOIN outbox.sinks s ON s.name = l.sink AND s.dropped_at IS NULL
CROSS JOIN LATERAL (
    SELECT pg_catalog.count(*) AS lanes, pg_catalog.count(q.pid) AS relays, pg_catalog.count(*) FILTER (WHERE q.state = 'backing_off') AS backing_off
    FROM outbox.relays q WHERE q.sink = l.sink) r
CROSS JOIN LATERAL (
    SELECT extract(epoch FROM pg_catalog.clock_timestamp() - min(q.last_beat_at))::double precision AS heartbeat_seconds
    FROM outbox.live_relays() q WHERE q.sink_id = s.sink_id AND q.pid IS NOT NULL) b
CROSS JOIN LATERAL (SELECT coalesce(sum(q.published), 0) AS published FROM outbox.lane_progress q WHERE q.sink_id = s.sink_id) p
CROSS JOIN LATERAL (
    SELECT coalesce(sum(q.published), 0) AS published, coalesce(sum(q.unparked), 0)::bigint AS unparked, coalesce(sum(q.bytes), 0)::bigint AS bytes,
           coalesce(sum(q.late), 0)::bigint AS late, coalesce(sum(q.errors_outage), 0)::bigint AS errors_outage,
           coalesce(sum(q.errors_stuck), 0)::bigint AS errors_stuck, coalesce(sum(q.errors_poison), 0)::bigint AS errors_poison,
           coalesce(sum(q.errors_producer), 0)::bigint AS errors_producer, coalesce(sum(q.errors_internal), 0)::bigint AS errors_internal,
           coalesce(sum(q.errors_order), 0)::bigint AS errors_order, coalesce(sum(q.parked_retry), 0)::bigint AS parked_retry,
           coalesce(sum(q.parked_dead), 0)::bigint AS parked_dead, coalesce(sum(q.parked_behind), 0)::bigint AS parked_behind,
           coalesce(sum(q.delivery_us), 0) AS delivery_us, coalesce(sum(q.batch_events), 0)::bigint AS batch_events
    FROM outbox.counters q WHERE q.sink_id = s.sink_id) c
-- The last bucket, above all bounds, is in the count alone.
CROSS JOIN LATERAL (
    SELECT pg_catalog.array_agg(x.covered ORDER BY x.i) FILTER (WHERE x.i <= pg_catalog.cardinality(bound.delivery)) AS cumulative, max(x.covered) AS deliveries
    FROM (SELECT i, (sum(coalesce((SELECT sum(q.delivery_buckets[i]) FROM outbox.counters q WHERE q.sink_id = s.sink_id), 0)) OVER (ORDER BY i))::bigint AS covered
          FROM pg_catalog.generate_series(1, pg_catalog.cardinality(bound.delivery) + 1) i) x) d
CROSS JOIN LATERAL (
    SELECT pg_catalog.array_agg(x.covered ORDER BY x.i) FILTER (WHERE x.i <= pg_catalog.cardinality(bound.batch)) AS cumulative, max(x.covered) AS batches
    FROM (SELECT i, (sum(coalesce((SELECT sum(q.batch_buckets[i]) FROM outbox.counters q WHERE q.sink_id = s.sink_id), 0)) OVER (ORDER BY i))::bigint AS covered
          FROM pg_catalog.generate_series(1, pg_catalog.cardinality(bound.batch) + 1) i) x) n;
COMMENT ON VIEW outbox.metrics IS 'A row per sink, for Prometheus: monitoring/ has what its exporter needs';
COMMENT ON COLUMN outbox.metrics.lanes IS 'Lanes of the sink, each of which should have a relay';
COMMENT ON COLUMN outbox.metrics.relays IS 'Relays that are there';
COMMENT ON COLUMN outbox.metrics.backing_off IS 'Relays whose sink is down for them';
COMMENT ON COLUMN outbox.metrics.heartbeat_seconds IS 'How long ago the loop of the relay that is furthest behind came round; NULL: there is none';
COMMENT ON COLUMN outbox.metrics.no_worker IS '1 if this is the sink''s state, likewise for halted, disabled, paused, off';
COMMENT ON COLUMN outbox.metrics.published_total IS 'Events delivered';
COMMENT ON COLUMN outbox.metrics.unparked_total IS 'Of these, delivered after they had been parked';
COMMENT ON COLUMN outbox.metrics.bytes_total IS 'Bytes of their payloads';
COMMENT ON COLUMN outbox.metrics.batches_total IS 'Batches in which events were delivered';
COMMENT ON COLUMN outbox.metrics.late_total IS 'Events delivered of transactions that committed after later ids had been sent';
COMMENT ON COLUMN outbox.metrics.errors_outage_total IS 'How often a relay found the sink down';
COMMENT ON COLUMN outbox.metrics.errors_stuck_total IS 'Attempts to deliver an event that its topic or partition did not take';
COMMENT ON COLUMN outbox.metrics.errors_poison_total IS 'Events that the sink refuses for ever';
COMMENT ON COLUMN outbox.metrics.errors_producer_total IS 'Kafka producers that failed for good and were replaced';
COMMENT ON COLUMN outbox.metrics.errors_internal_total IS 'Errors of PostgreSQL in a relay; last_error and the server log have the words';
COMMENT ON COLUMN outbox.metrics.errors_order_total IS 'Batches that broke the order of a key, which must never happen';
COMMENT ON COLUMN outbox.metrics.parked_retry_total IS 'Events parked as retry; parked_dead_total, parked_behind_total likewise';
COMMENT ON COLUMN outbox.metrics.delivery_seconds IS 'Time from an event''s created_at to its batch''s acknowledgement: that from the commit, and what the transaction did after the event';
COMMENT ON COLUMN outbox.metrics.batch_events IS 'Events delivered in a batch';

CREATE VIEW outbox.metrics_log AS
SELECT pg_catalog.current_database()::text COLLATE pg_catalog."default" AS database,
       (SELECT sum(pg_catalog.pg_total_relation_size(i.inhrelid)) FROM pg_catalog.pg_inherits i
        WHERE i.inhparent = 'outbox.events'::pg_catalog.regclass)::bigint AS bytes,
       pg_catalog.count(*) FILTER (WHERE g.truncated_at IS NULL) AS segments,
       coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - min(g.closed_at) FILTER (WHERE g.truncated_at IS NULL)), 0)::double precision AS oldest_segment_seconds,
       extract(epoch FROM pg_catalog.current_setting('outbox.retention', true)::interval)::double precision AS retention_seconds,
       (SELECT greatest(coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - min(d.deliver_at)), 0), 0)::double precision FROM outbox.scheduled d)
           AS scheduled_overdue_seconds
FROM outbox.segments g;
COMMENT ON VIEW outbox.metrics_log IS 'One row for the log of this database, for Prometheus';
COMMENT ON COLUMN outbox.metrics_log.segments IS 'Of the 16 segments, those in use';
COMMENT ON COLUMN outbox.metrics_log.oldest_segment_seconds IS 'How long ago the oldest segment that is still kept was closed; 0: there is none';
COMMENT ON COLUMN outbox.metrics_log.scheduled_overdue_seconds IS 'How long the first scheduled event has been due and has not moved to the log';

-- Events lie in the order of their times, give or take what a writer can be held up between drawing an id and looking at the
-- clock. So: bisect.
CREATE FUNCTION outbox.id_at(at timestamptz) RETURNS bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    first_id bigint;
    last_id bigint;
    middle bigint;
    written_at timestamptz;
BEGIN
    SELECT min(e.id), max(e.id) INTO first_id, last_id FROM outbox.events e;
    WHILE first_id < last_id LOOP
        middle := first_id + (last_id - first_id) / 2;
        SELECT e.created_at INTO written_at FROM outbox.events e WHERE e.id >= middle ORDER BY e.id LIMIT 1;
        IF written_at < id_at.at THEN first_id := middle + 1; ELSE last_id := middle; END IF;
    END LOOP;
    RETURN first_id;
END $$;
COMMENT ON FUNCTION outbox.id_at(timestamptz) IS 'About the first event that was written at that time or later, or the last one; NULL: the log is empty';

-- The log has no index on event_id, which would cost every writer. But an id that was made here tells when: look through 4 seconds,
-- and through the whole log only if it is not there.
CREATE FUNCTION outbox.find_event(event_id uuid) RETURNS SETOF outbox.events
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    hex text := replace(find_event.event_id::text, '-', '');
    made_at timestamptz;
    first_id bigint;
    last_id bigint;
BEGIN
    IF substr(hex, 13, 1) = '7' THEN
        made_at := to_timestamp(('x' || lpad(left(hex, 12), 16, '0'))::bit(64)::bigint / 1000.0) - interval '2 seconds';
        first_id := outbox.id_at(made_at);
        SELECT e.id INTO last_id FROM outbox.events e
            WHERE e.id >= first_id AND e.created_at > made_at + interval '4 seconds' ORDER BY e.id LIMIT 1;
        RETURN QUERY SELECT e.* FROM outbox.events e
            WHERE e.id >= first_id AND e.id < coalesce(last_id, 9223372036854775807) AND e.event_id = find_event.event_id;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    RETURN QUERY SELECT e.* FROM outbox.events e WHERE e.event_id = find_event.event_id;
END $$;
COMMENT ON FUNCTION outbox.find_event(uuid) IS 'The rows of the log with an event_id';

-- Where an event is for a sink follows from the predicate; when it was published from the progress rows: the first that
-- covers it, and the one before. Relays thin those out to one a minute.
CREATE FUNCTION outbox.status(event_id uuid, OUT sink text, OUT id bigint, OUT state text, OUT detail text,
        OUT published_after timestamptz, OUT published_before timestamptz) RETURNS SETOF record
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    WITH logged AS MATERIALIZED (SELECT * FROM outbox.find_event($1)),
    target AS MATERIALIZED (
        SELECT v.name, v.events, v.home, s.sink_id, s.floor
        FROM outbox.servers v LEFT JOIN outbox.sinks s ON s.name = v.name AND s.dropped_at IS NULL),
    place AS (
        SELECT t.name, coalesce(e.id, k.id) AS id,
               e.id IS NOT NULL AS logged, e.created_at,
               e.id IS NULL OR outbox.takes(t.events, e.aggregate_type, e.event_type) AS taken,
               t.sink_id IS NULL AS without_lanes,
               k.reason, k.attempts, k.last_error, d.action, d.discarded_by, d.discarded_at, d.reason AS why,
               c.recorded_at, c.epoch, c.batch, c.lane, t.sink_id
        FROM target t
        LEFT JOIN logged e ON true
        LEFT JOIN outbox.parked_events k ON k.sink_id = t.sink_id AND k.event_id = $1 AND k.id = coalesce(e.id, k.id)
        LEFT JOIN LATERAL (
            SELECT * FROM outbox.discarded x WHERE x.event_id = $1 AND (x.sink IS NULL OR x.sink = t.name AND x.id = coalesce(e.id, x.id))
            ORDER BY x.discarded_at DESC LIMIT 1) d ON true
        LEFT JOIN LATERAL (
            SELECT p.* FROM outbox.progress p
            WHERE p.sink_id = t.sink_id
              AND p.lane = outbox.lane_of(e.aggregate_id, e.id,
                  1 + (SELECT max(q.lane) FROM outbox.progress q WHERE q.sink_id = p.sink_id AND q.epoch = p.epoch))
              AND e.id <= p."position"
              AND (e.id <= t.floor OR pg_visible_in_snapshot(e.xid, p.seen)
                   OR coalesce(e.id <= p.late_position AND pg_visible_in_snapshot(e.xid, p.late_seen), false))
            ORDER BY p.epoch, p.batch LIMIT 1) c ON true)
    SELECT p.name, p.id,
           CASE WHEN p.reason IS NOT NULL THEN 'parked'
                WHEN p.action IS NOT NULL THEN p.action
                WHEN NOT p.logged THEN CASE WHEN w.deliver_at IS NOT NULL THEN 'pending' ELSE 'gone' END
                WHEN NOT p.taken OR p.epoch = 1 AND p.batch = 0 THEN 'not for this sink'
                WHEN p.recorded_at IS NULL THEN 'pending'
                ELSE 'published' END,
           CASE WHEN p.reason IS NOT NULL THEN
                    p.reason || CASE WHEN p.attempts > 0 THEN format(', tried %s times', p.attempts) ELSE '' END || coalesce(': ' || p.last_error, '')
                WHEN p.action IS NOT NULL THEN format('by %s at %s', p.discarded_by, p.discarded_at) || coalesce(': ' || p.why, '')
                WHEN NOT p.logged THEN CASE WHEN w.deliver_at IS NOT NULL THEN format('scheduled for %s', w.deliver_at)
                                            ELSE 'not in the log: older than outbox.retention, or never written' END
                WHEN NOT p.taken THEN 'the sink''s option "events" leaves it out'
                WHEN p.epoch = 1 AND p.batch = 0 THEN 'the sink began after it'
                WHEN p.without_lanes THEN 'the sink is halted'
                WHEN p.recorded_at IS NOT NULL THEN 'between these two times'
           END,
           CASE WHEN b.published THEN greatest(p.created_at, (
               SELECT max(q.recorded_at) FROM outbox.progress q
               WHERE q.sink_id = p.sink_id AND q.epoch = p.epoch AND q.lane = p.lane AND q.batch < p.batch)) END,
           CASE WHEN b.published THEN p.recorded_at END
    FROM place p
    CROSS JOIN LATERAL (
        SELECT p.reason IS NULL AND p.action IS NULL AND p.logged AND p.taken AND p.recorded_at IS NOT NULL
               AND NOT (p.epoch = 1 AND p.batch = 0) AS published) b
    LEFT JOIN LATERAL (SELECT x.deliver_at FROM outbox.scheduled x WHERE x.event_id = $1 ORDER BY 1 LIMIT 1) w ON true
    ORDER BY p.name, p.id
    $$;
COMMENT ON FUNCTION outbox.status(uuid) IS 'Where an event is, a row per sink: pending, published (between two times), parked, discarded, cancelled, not for this sink, gone';

CREATE VIEW outbox.replays AS
SELECT q.replay_id AS id, s.name AS sink, q.since, q.until, q.aggregate_id,
       CASE WHEN q.stopped THEN 'stopped'
            WHEN q.finished_at IS NOT NULL THEN 'done'
            WHEN v.name IS NULL THEN 'dropped'
            WHEN v.home IS DISTINCT FROM w.home OR s.halted IS NOT NULL THEN 'halted'
            WHEN EXISTS (SELECT FROM outbox.replay_requests e WHERE e.sink_id = q.sink_id AND e.finished_at IS NULL AND e.replay_id < q.replay_id) THEN 'queued'
            WHEN r.pid IS NULL AND (NOT w.preloaded OR w.launcher_pid IS NULL) THEN 'no_worker'
            WHEN NOT w.publishing THEN 'off'
            WHEN s.paused THEN 'paused'
            WHEN r.pid IS NULL AND w.no_worker_slot THEN 'no_worker'
            WHEN r.pid IS NULL OR r.state IN ('stopping', 'off', 'paused', 'halted', 'idle') THEN 'starting'
            ELSE r.state END AS state,
       q.sent, q.skipped, q."position", q.last_id, q.requested_by, q.started_at, q.finished_at,
       coalesce(CASE WHEN q.finished_at IS NULL THEN r.last_error END, q.last_error) AS last_error
FROM outbox.replay_requests q
JOIN outbox.sinks s USING (sink_id)
CROSS JOIN outbox.worker_state() w
LEFT JOIN outbox.servers v ON v.name = s.name AND s.dropped_at IS NULL
LEFT JOIN outbox.live_relays() r ON r.sink_id = q.sink_id AND r.lane = -1;
COMMENT ON VIEW outbox.replays IS 'A row per replay: what is sent again, and how far it has come';
COMMENT ON COLUMN outbox.replays.state IS 'running, queued (behind another one of its sink), done, stopped, dropped (its sink was), else as in outbox.lag';
COMMENT ON COLUMN outbox.replays.skipped IS 'Events that the sink did not take; last_error has a reason';
COMMENT ON COLUMN outbox.replays."position" IS 'All events up to this id are done; the end is last_id';

-- Why the oldest closed segment is kept although it could go by its age: what truncation asks for (src/store/segments.cpp), in words.
CREATE FUNCTION outbox.segment_holders(OUT holder text) RETURNS SETOF text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    WITH oldest AS MATERIALIZED (
        SELECT g.*, (SELECT min(e.id) FROM outbox.events e WHERE e.segment = g.segment) AS first, (SELECT max(e.id) FROM outbox.events e WHERE e.segment = g.segment) AS last
        FROM (SELECT turn, segment, fence, closed_at FROM outbox.segments WHERE truncated_at IS NULL AND fence IS NOT NULL ORDER BY turn LIMIT 1) g
        WHERE g.closed_at < clock_timestamp() - current_setting('outbox.retention', true)::interval),
    w AS MATERIALIZED (SELECT * FROM outbox.worker_state()),
    behind AS MATERIALIZED (
        SELECT DISTINCT s.sink_id, s.name, s.paused, s.halted, s.dropped_at FROM oldest o, outbox.sinks s JOIN outbox.lanes l USING (sink_id)
        CROSS JOIN LATERAL (SELECT * FROM outbox.progress p WHERE p.sink_id = l.sink_id AND p.epoch = l.epoch AND p.lane = l.lane ORDER BY p.batch DESC LIMIT 1) p
        WHERE p."position" < o.last OR p.late_seen IS NOT NULL OR pg_snapshot_xmin(p.seen) < o.fence)
    SELECT format('sink "%s" is halted: it keeps all of the log', v.name) FROM oldest, outbox.servers v, w WHERE v.home IS DISTINCT FROM w.home
    UNION ALL
    SELECT format('sink "%s" has still to get events of it', b.name)
           || CASE WHEN NOT w.publishing THEN ': outbox.publish is off' WHEN b.paused THEN ': it is paused'
                   ELSE coalesce(': ' || (SELECT r.last_error FROM outbox.live_relays() r WHERE r.sink_id = b.sink_id AND r.lane >= 0 AND r.last_error IS NOT NULL LIMIT 1), '') END
    FROM behind b JOIN outbox.servers v USING (name), w WHERE b.dropped_at IS NULL AND v.home = w.home
    UNION ALL
    SELECT format('sink "%s" was dropped at %s with events to get: it may come back for outbox.retention, or outbox.forget it', b.name, b.dropped_at)
    FROM behind b WHERE b.dropped_at > clock_timestamp() - current_setting('outbox.retention', true)::interval
    UNION ALL
    SELECT format('process %s has had a transaction open since %s (%s)', a.pid, a.xact_start, coalesce(nullif(a.application_name, ''), a.backend_type)) FROM oldest o, pg_stat_activity a
    WHERE a.datname = current_database() AND age(a.backend_xid) > age(o.fence::xid)
    UNION ALL
    SELECT format('the transaction "%s" has been prepared since %s', x.gid, x.prepared) FROM oldest o, pg_prepared_xacts x
    WHERE x.database = current_database() AND age(x.transaction) > age(o.fence::xid)
    UNION ALL
    SELECT DISTINCT format('process %s has been reading it since %s (%s)', a.pid, a.xact_start, coalesce(nullif(a.application_name, ''), a.backend_type)) FROM oldest o, pg_locks k JOIN pg_stat_activity a USING (pid)
    WHERE k.relation = to_regclass('outbox.events_' || o.segment) AND k.granted AND a.datname = current_database()
      AND a.xact_start < clock_timestamp() - interval '1 second' AND a.pid <> pg_backend_pid()
    UNION ALL
    SELECT format('replay %s of sink "%s" has still to read it', r.replay_id, s.name) FROM oldest o, outbox.replay_requests r JOIN outbox.sinks s USING (sink_id)
    WHERE r.finished_at IS NULL AND s.dropped_at IS NULL AND r."position" < o.last AND r.last_id >= o.first
    $$;
COMMENT ON FUNCTION outbox.segment_holders() IS 'Who still needs the oldest closed segment of the log';

CREATE VIEW outbox.health AS
WITH w AS MATERIALIZED (SELECT * FROM outbox.worker_state()),
sink AS MATERIALIZED (
    SELECT l.*, v.lanes AS lanes_wanted, s.lanes, s.sink_id, c.since AS changing_since
    FROM outbox.lag l JOIN outbox.servers v ON v.name = l.sink
    LEFT JOIN outbox.sinks s ON s.name = l.sink AND s.dropped_at IS NULL
    LEFT JOIN outbox.lane_changes c ON c.sink_id = s.sink_id),
ours AS MATERIALIZED (
    SELECT c.oid, c.relname, c.relowner, c.relacl, c.relkind FROM pg_catalog.pg_class c
    WHERE c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = 'outbox') AND c.relkind IN ('r', 'p')),
segment AS MATERIALIZED (
    SELECT pg_catalog.count(*) FILTER (WHERE g.truncated_at IS NULL) AS kept,
           (SELECT sum(pg_catalog.pg_total_relation_size(o.oid)) FROM ours o WHERE o.relname LIKE 'events\_%') AS bytes,
           (SELECT pg_catalog.string_agg(h.holder, '; ' ORDER BY h.holder) FROM outbox.segment_holders() h) AS holders,
           -- A lane's progress rows are thinned out to one a minute, and a relay looks once a minute.
           coalesce(min(g.closed_at) FILTER (WHERE g.truncated_at IS NULL)
               < pg_catalog.clock_timestamp() - pg_catalog.current_setting('outbox.retention', true)::interval - interval '10 minutes', false) AS overdue
    FROM outbox.segments g)
SELECT 'preload' AS "check", w.preloaded AS ok,
       CASE WHEN w.preloaded THEN 'the library is preloaded' ELSE 'the library is not preloaded: events are stored and nothing is sent' END AS detail,
       CASE WHEN NOT w.preloaded THEN 'Add the line  shared_preload_libraries = ''outbox''  to postgresql.conf and restart the server.' END AS hint
FROM w
UNION ALL
SELECT 'launcher', w.launcher_pid IS NOT NULL, coalesce('process ' || w.launcher_pid, 'the launcher does not run'),
       CASE WHEN w.launcher_pid IS NULL AND w.preloaded THEN
           CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'A standby sends nothing; the launcher starts by itself after promotion.'
                ELSE 'Raise max_worker_processes and restart the server; the server log has the reason.' END END
FROM w WHERE w.preloaded
UNION ALL
SELECT 'worker slot', NOT w.no_worker_slot,
       CASE WHEN w.no_worker_slot THEN 'no background worker slot is free for a relay' ELSE 'max_worker_processes is ' || pg_catalog.current_setting('max_worker_processes') END,
       CASE WHEN w.no_worker_slot THEN 'Raise max_worker_processes in postgresql.conf and restart the server.' END
FROM w WHERE w.preloaded
UNION ALL
SELECT 'databases', NOT w.left_out,
       CASE WHEN w.left_out THEN 'this server has more databases than outbox has room for, and this one gets no relays' ELSE 'this one has a place' END,
       CASE WHEN w.left_out THEN 'outbox has room for 256 databases: drop those that are not needed, or ALTER DATABASE ... ALLOW_CONNECTIONS false.' END
FROM w WHERE w.preloaded
UNION ALL
SELECT 'publish', w.publishing, 'outbox.publish is ' || CASE WHEN w.publishing THEN 'on' ELSE 'off: nothing is sent' END,
       CASE WHEN NOT w.publishing THEN 'ALTER SYSTEM SET outbox.publish = on; SELECT pg_reload_conf();' END
FROM w
UNION ALL
SELECT 'version', e.extversion = w.library_version, pg_catalog.format('library %s, SQL %s', w.library_version, e.extversion),
       CASE WHEN e.extversion <> w.library_version THEN 'ALTER EXTENSION outbox UPDATE; if the library is the older one, restart the server first.' END
FROM w, pg_catalog.pg_extension e WHERE e.extname = 'outbox'
UNION ALL
SELECT 'sinks', pg_catalog.count(*) > 0, pg_catalog.count(*) || ' in this database',
       CASE WHEN pg_catalog.count(*) = 0 THEN 'Events are kept until there is a sink: CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers ''...''), or outbox_http OPTIONS (url ''...'').' END
FROM outbox.servers
UNION ALL
SELECT pg_catalog.format('sink %s', k.sink), k.state IN ('running', 'idle', 'starting') AND k.last_error IS NULL,
       k.state || coalesce(': ' || k.last_error, ''),
       CASE k.state
           WHEN 'halted' THEN pg_catalog.format('If this installation is to publish from now on, and the other one does not any more: SELECT outbox.resume(%L). Else DROP SERVER %I.', k.sink, k.sink)
           WHEN 'paused' THEN pg_catalog.format('SELECT outbox.resume(%L);', k.sink)
           WHEN 'off' THEN 'outbox.publish is off.'
           WHEN 'no_worker' THEN 'See the checks preload, launcher, worker slot and databases; and a server runs at most 128 relays.'
           WHEN 'disabled' THEN pg_catalog.format('ALTER SERVER %I OPTIONS (SET ...), or SELECT outbox.resume(%L) where an endpoint is there again.', k.sink, k.sink)
           ELSE CASE WHEN k.last_error IS NOT NULL THEN pg_catalog.format('SELECT * FROM outbox.test_sink(%L);', k.sink) END END
FROM sink k
UNION ALL
SELECT pg_catalog.format('sink %s: pending', k.sink), k.oldest_pending_age < interval '1 minute',
       pg_catalog.format('%s events, the oldest for %s', k.pending, pg_catalog.justify_interval(pg_catalog.date_trunc('second', k.oldest_pending_age))),
       CASE WHEN k.oldest_pending_age >= interval '1 minute' THEN pg_catalog.format('SELECT * FROM outbox.relays WHERE sink = %L; if its position moves, it is catching up.', k.sink) END
FROM sink k
UNION ALL
SELECT pg_catalog.format('sink %s: parked', k.sink), k.dead = 0 AND k.oldest_parked_age < interval '5 minutes',
       pg_catalog.format('%s dead, %s that are tried again, the oldest for %s', k.dead, k.parked, pg_catalog.justify_interval(pg_catalog.date_trunc('second', k.oldest_parked_age))),
       CASE WHEN k.dead > 0 THEN pg_catalog.format('SELECT * FROM outbox.parked WHERE sink = %1$L AND reason = ''dead''; then outbox.redrive(%1$L) or outbox.discard(%1$L, event_id, reason).', k.sink)
            WHEN k.oldest_parked_age >= interval '5 minutes' THEN pg_catalog.format('SELECT topic, reason, last_error FROM outbox.parked WHERE sink = %L;', k.sink) END
FROM sink k
UNION ALL
SELECT pg_catalog.format('sink %s: heartbeat', k.sink), min(r.last_beat_at) > b.since,
       'last heard of at ' || min(r.last_beat_at),
       CASE WHEN min(r.last_beat_at) <= b.since THEN 'A relay is stopped or waits for a lock: look for its pid (outbox.relays) in pg_stat_activity and pg_locks.' END
FROM sink k JOIN outbox.live_relays() r USING (sink_id)
CROSS JOIN LATERAL (
    SELECT pg_catalog.clock_timestamp() - interval '1 minute' - 3 * pg_catalog.current_setting('outbox.poll_interval', true)::interval AS since) b
WHERE r.pid IS NOT NULL AND r.last_beat_at IS NOT NULL GROUP BY k.sink, b.since
UNION ALL
SELECT pg_catalog.format('sink %s: lanes', k.sink), false,
       pg_catalog.format('the change from %s to %s lanes waits until every lane has come to one point', k.lanes, k.lanes_wanted)
           || coalesce(', since ' || k.changing_since, ''),
       'It needs a sink that can be reached and events that can be sent.'
FROM sink k WHERE k.lanes <> k.lanes_wanted AND k.state <> 'halted'
UNION ALL
SELECT pg_catalog.format('sink %s: replay %s', r.sink, r.id), r.state IN ('running', 'starting', 'queued') AND r.last_error IS NULL,
       pg_catalog.format('%s: %s sent, %s skipped, at id %s of %s', r.state, r.sent, r.skipped, r."position", r.last_id) || coalesce('; ' || r.last_error, ''),
       CASE WHEN r.state NOT IN ('running', 'starting', 'queued') OR r.last_error IS NOT NULL
            THEN pg_catalog.format(CASE r.state
                     WHEN 'dropped' THEN 'It goes on if a sink of that name is created again. SELECT outbox.stop_replay(%s); ends it.'
                     WHEN 'halted' THEN 'It goes no further: outbox.resume of the sink would stop it. SELECT outbox.stop_replay(%s); ends it, too.'
                     ELSE 'It goes on by itself; what it has still to read stays in the log. SELECT outbox.stop_replay(%s); ends it.' END, r.id) END
FROM outbox.replays r WHERE r.finished_at IS NULL
UNION ALL
SELECT 'segments', g.kept < 16 AND NOT g.overdue,
       pg_catalog.format('%s of 16 in use, %s', g.kept, pg_catalog.pg_size_pretty(g.bytes))
           || coalesce('; the oldest could have gone by its age, but ' || g.holders, ''),
       CASE WHEN g.kept >= 16 OR g.overdue
            THEN 'Old events cannot be removed before every sink has them, so the log grows: see outbox.lag, outbox.sinks for one that was dropped, outbox.replays, and pg_stat_activity for transactions that are open for days.' END
FROM segment g
UNION ALL
SELECT 'id sequence', q.seqcache = 1 AND q.seqincrement = 1 AND NOT q.seqcycle,
       pg_catalog.format('cache %s, increment %s', q.seqcache, q.seqincrement),
       CASE WHEN q.seqcache <> 1 OR q.seqincrement <> 1 OR q.seqcycle THEN 'ALTER SEQUENCE outbox.events_id_seq CACHE 1 INCREMENT 1 NO CYCLE; events may be overlooked otherwise.' END
FROM pg_catalog.pg_sequence q WHERE q.seqrelid = 'outbox.events_id_seq'::pg_catalog.regclass
UNION ALL
SELECT 'publications', pg_catalog.count(*) = 0,
       coalesce('tables of outbox are in ' || pg_catalog.string_agg(DISTINCT p.pubname::text COLLATE pg_catalog."default", ', '), 'no table of outbox is in a publication'),
       CASE WHEN pg_catalog.count(*) > 0 THEN 'Their rows carry transaction ids of this cluster and mean nothing elsewhere: leave the schema outbox out of the publication.' END
FROM pg_catalog.pg_publication_tables p WHERE p.schemaname = 'outbox'
UNION ALL
SELECT 'encoding', d.encoding <> 0, pg_catalog.pg_encoding_to_char(d.encoding)::text COLLATE pg_catalog."default",
       CASE WHEN d.encoding = 0 THEN 'In a database of encoding SQL_ASCII only text that is valid UTF-8 can be an event; use UTF8.' END
FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()
UNION ALL
SELECT 'event triggers', pg_catalog.count(*) = 3 AND coalesce(pg_catalog.current_setting('event_triggers', true), 'on') = 'on',
       pg_catalog.count(*) || ' of 3 are enabled' || CASE WHEN pg_catalog.current_setting('event_triggers', true) = 'off' THEN '; event_triggers is off' ELSE '' END,
       CASE WHEN pg_catalog.count(*) <> 3 OR pg_catalog.current_setting('event_triggers', true) = 'off'
            THEN 'CREATE, ALTER and DROP SERVER go unnoticed without them: ALTER EVENT TRIGGER ... ENABLE ALWAYS, event_triggers = on.' END
FROM pg_catalog.pg_event_trigger t
WHERE t.evtname IN ('outbox_sink_ddl', 'outbox_sink_drop_start', 'outbox_sink_drop') AND t.evtenabled = 'A'
UNION ALL
-- Relays run as a superuser, so a trigger of somebody else's would too.
SELECT 'triggers', pg_catalog.count(*) = 0,
       coalesce('foreign to outbox: ' || pg_catalog.string_agg(x.what COLLATE pg_catalog."default", ', '), 'only ours are on the tables of outbox'),
       CASE WHEN pg_catalog.count(*) > 0 THEN 'They run with the rights of the relay, a superuser. Drop them, revoke TRIGGER.' END
FROM (
    SELECT pg_catalog.format('trigger %s on %s', t.tgname, o.relname) AS what
    FROM ours o JOIN pg_catalog.pg_trigger t ON t.tgrelid = o.oid
    WHERE NOT t.tgisinternal AND t.tgname NOT IN ('check_event', 'check_scheduled', 'refuse_truncate', 'restore_segment', 'skip_row')
    UNION ALL
    SELECT pg_catalog.format('TRIGGER on %s for %s', o.relname, a.grantee::pg_catalog.regrole)
    FROM ours o, pg_catalog.aclexplode(o.relacl) a WHERE a.privilege_type = 'TRIGGER' AND a.grantee <> o.relowner) x;
COMMENT ON VIEW outbox.health IS 'A row per check: what is wrong, and what to do';

-- =====================================================================================================================
-- Acting
-- =====================================================================================================================

CREATE FUNCTION outbox.wake() RETURNS void
    LANGUAGE c VOLATILE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_wake';
COMMENT ON FUNCTION outbox.wake() IS 'This database''s relays look again at what is parked when the transaction commits';

CREATE FUNCTION outbox.known_sink(sink text) RETURNS integer
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    found_id integer;
BEGIN
    SELECT s.sink_id INTO found_id FROM outbox.sinks s WHERE s.name = known_sink.sink;
    IF found_id IS NULL THEN
        RAISE EXCEPTION 'there is no sink "%"', known_sink.sink USING ERRCODE = 'undefined_object', HINT = 'outbox.lag lists the sinks.';
    END IF;
    RETURN found_id;
END $$;
COMMENT ON FUNCTION outbox.known_sink(text) IS 'The number of a sink, or an error';

-- The event keeps its place: what is parked behind it goes out after it.
CREATE FUNCTION outbox.redrive(sink text, event_id uuid DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    number integer := outbox.known_sink(redrive.sink);
    redriven bigint;
BEGIN
    UPDATE outbox.parked_events p SET reason = 'retry', next_attempt_at = clock_timestamp()
        WHERE p.sink_id = number
          AND CASE WHEN redrive.event_id IS NULL THEN p.reason = 'dead' ELSE p.event_id = redrive.event_id AND p.reason <> 'behind' END;
    GET DIAGNOSTICS redriven = ROW_COUNT;
    IF redriven = 0 AND redrive.event_id IS NOT NULL THEN
        RAISE EXCEPTION 'sink "%" has no dead event %', redrive.sink, redrive.event_id
            USING ERRCODE = 'no_data_found', HINT = format('SELECT * FROM outbox.status(%L);', redrive.event_id);
    END IF;
    PERFORM outbox.wake();
    RETURN redriven;
END $$;
COMMENT ON FUNCTION outbox.redrive(text, uuid) IS 'Dead events (all of the sink''s for NULL) are sent again, in their order; returns how many';

CREATE FUNCTION outbox.discard(sink text, event_id uuid, reason text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    number integer := outbox.known_sink(discard.sink);
    gone bigint;
BEGIN
    IF discard.event_id IS NULL OR coalesce(btrim(discard.reason), '') = '' THEN
        RAISE EXCEPTION 'event_id and reason must be given'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'The reason is kept in outbox.discarded.';
    END IF;
    WITH dropped AS (
        DELETE FROM outbox.parked_events p WHERE p.sink_id = number AND p.event_id = discard.event_id RETURNING p.*)
    INSERT INTO outbox.discarded (sink, id, event_id, aggregate_id, topic, event_type, action, reason, discarded_by)
        SELECT discard.sink, d.id, d.event_id, d.aggregate_id, d.destination, d.event_type, 'discarded', discard.reason, session_user FROM dropped d;
    GET DIAGNOSTICS gone = ROW_COUNT;
    IF gone = 0 THEN
        RAISE EXCEPTION 'sink "%" has no parked event %', discard.sink, discard.event_id
            USING ERRCODE = 'no_data_found', HINT = format('Only parked events can be discarded: SELECT * FROM outbox.status(%L);', discard.event_id);
    END IF;
    PERFORM outbox.wake();
    RETURN gone;
END $$;
COMMENT ON FUNCTION outbox.discard(text, uuid, text) IS 'Drops a parked event of a sink on purpose and on record; returns how many';

CREATE FUNCTION outbox.cancel(event_id uuid) RETURNS boolean
    LANGUAGE sql VOLATILE STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    WITH withdrawn AS (DELETE FROM outbox.scheduled s WHERE s.event_id = $1 RETURNING s.*),
    recorded AS (
        INSERT INTO outbox.discarded (id, event_id, aggregate_id, topic, event_type, action, discarded_by)
        SELECT w.id, w.event_id, w.aggregate_id, w.topic, w.event_type, 'cancelled', session_user FROM withdrawn w RETURNING 1)
    SELECT count(*) > 0 FROM recorded
    $$;
COMMENT ON FUNCTION outbox.cancel(uuid) IS 'Withdraws a scheduled event; false when it is not there any more';

-- What is pending has a position above it, or is late: it belongs to the lanes. `until` is NULL: up to now.
CREATE FUNCTION outbox.replay(sink text, since timestamptz, until timestamptz DEFAULT NULL, aggregate_id text DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    number integer := outbox.known_sink(replay.sink);
    found_id bigint;
BEGIN
    -- Whoever drops or forgets the sink waits for us, or we for them.
    PERFORM FROM outbox.sinks s JOIN outbox.servers v USING (name) WHERE s.sink_id = number AND s.dropped_at IS NULL FOR SHARE OF s;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'sink "%" was dropped', replay.sink USING ERRCODE = 'undefined_object', HINT = 'outbox.lag lists the sinks.';
    END IF;
    replay.since := coalesce(replay.since, '-infinity');
    replay.until := coalesce(replay.until, clock_timestamp());
    IF replay.since >= replay.until THEN
        RAISE EXCEPTION 'since must be before until' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- A minute on either side for what a writer can be held up between drawing its id and looking at the clock.
    INSERT INTO outbox.replay_requests (sink_id, since, until, aggregate_id, "position", last_id)
    SELECT number, replay.since, replay.until, replay.aggregate_id,
           coalesce(b.first_id - 1, 0),
           coalesce(CASE WHEN b.last_id IS NOT NULL THEN least(b.last_id, (SELECT max(p."position") FROM outbox.lane_progress p WHERE p.sink_id = number)) END, 0)
    FROM (SELECT outbox.id_at(replay.since - interval '1 minute') AS first_id, outbox.id_at(replay.until + interval '1 minute') AS last_id) b
    RETURNING replay_id INTO found_id;
    PERFORM outbox.wake();
    RETURN found_id;
END $$;
COMMENT ON FUNCTION outbox.replay(text, timestamptz, timestamptz, text) IS
    'Sends a sink''s published events that are still in the log again, with the header outbox-replay; returns the replay''s id in outbox.replays';

CREATE FUNCTION outbox.stop_replay(id bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    UPDATE outbox.replay_requests q SET stopped = true, finished_at = clock_timestamp() WHERE q.replay_id = stop_replay.id AND q.finished_at IS NULL;
    IF FOUND THEN
        PERFORM outbox.wake();
        RETURN true;
    END IF;
    PERFORM FROM outbox.replay_requests q WHERE q.replay_id = stop_replay.id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no replay %', stop_replay.id USING ERRCODE = 'undefined_object', HINT = 'outbox.replays lists them.';
    END IF;
    RETURN false;
END $$;
COMMENT ON FUNCTION outbox.stop_replay(bigint) IS 'Ends a replay, after the slice that is on its way; false: it had ended before';

CREATE FUNCTION outbox.keep_house(OUT turned boolean, OUT truncated integer, OUT claims bigint)
    LANGUAGE c VOLATILE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_keep_house';
COMMENT ON FUNCTION outbox.keep_house() IS 'What a relay does by itself now and then: the ring of segments, and old claims of the inbox, at most 100,000 at a time';

CREATE FUNCTION outbox.retention_run(OUT turned boolean, OUT truncated integer, OUT claims bigint, OUT kept_for text)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    SELECT k.turned, k.truncated, k.claims INTO retention_run.turned, retention_run.truncated, retention_run.claims FROM outbox.keep_house() k;
    SELECT string_agg(h.holder, '; ' ORDER BY h.holder) INTO retention_run.kept_for FROM outbox.segment_holders() h;
END $$;
COMMENT ON FUNCTION outbox.retention_run() IS
    'Retention by hand: whether the ring of segments was turned, how many segments were truncated, how many claims of the inbox deleted, and what keeps a segment that could go by its age';

-- =====================================================================================================================
-- Rights
-- =====================================================================================================================

-- GRANT by somebody who has nothing to grant is a warning; here it is an error.
CREATE FUNCTION outbox.must_be_owner() RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    IF NOT pg_has_role((SELECT e.extowner FROM pg_extension e WHERE e.extname = 'outbox'), 'USAGE') THEN
        RAISE EXCEPTION 'must be owner of the extension "outbox"' USING ERRCODE = 'insufficient_privilege';
    END IF;
END $$;
COMMENT ON FUNCTION outbox.must_be_owner() IS 'An error for whoever is not the extension''s owner';

-- Runs with the caller's rights: who may not GRANT these cannot by this function either.
CREATE FUNCTION outbox.grant_writer(role text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    signature text;
BEGIN
    PERFORM outbox.must_be_owner();
    -- "public" and the like are no roles, but GRANT would take them.
    PERFORM FROM pg_roles r WHERE r.rolname = grant_writer.role;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'role "%" does not exist', grant_writer.role USING ERRCODE = 'undefined_object';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA outbox TO %I', grant_writer.role);
    FOR signature IN SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = 'outbox'::regnamespace
            -- An INSERT evaluates the columns' defaults with the writer's rights.
            AND p.proname IN ('add_event', 'next_id', 'current_segment', 'new_event_id', 'capture', 'uncapture', 'capture_row', 'check_types') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', signature, grant_writer.role);
    END LOOP;
    EXECUTE format('GRANT INSERT (event_id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, headers, topic),'
                   ' SELECT (id, event_id) ON outbox.events TO %I', grant_writer.role);
    EXECUTE format('GRANT INSERT (event_id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, headers, topic, deliver_at),'
                   ' SELECT (id, event_id) ON outbox.scheduled TO %I', grant_writer.role);
END $$;
COMMENT ON FUNCTION outbox.grant_writer(text) IS 'What a role needs to write events, and no more';

CREATE FUNCTION outbox.grant_monitor(role text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    object text;
BEGIN
    PERFORM outbox.must_be_owner();
    PERFORM FROM pg_roles r WHERE r.rolname = grant_monitor.role;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'role "%" does not exist', grant_monitor.role USING ERRCODE = 'undefined_object';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA outbox TO %I', grant_monitor.role);
    FOREACH object IN ARRAY ARRAY['lag', 'pending', 'relays', 'parked', 'discarded', 'replays', 'health', 'captures', 'metrics', 'metrics_log'] LOOP
        EXECUTE format('GRANT SELECT ON outbox.%I TO %I', object, grant_monitor.role);
    END LOOP;
    FOR object IN SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = 'outbox'::regnamespace
            -- A view's functions run with its reader's rights.
            AND p.proname IN ('status', 'backlog', 'worker_state', 'live_relays', 'foreign_home', 'lane_of', 'takes', 'segment_holders') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', object, grant_monitor.role);
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox.grant_monitor(text) IS 'What a role needs to see how the sinks are: the views, with the events in them, and outbox.status';

CREATE FUNCTION outbox.grant_writer(role regrole) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    PERFORM outbox.grant_writer((SELECT r.rolname::text FROM pg_roles r WHERE r.oid = grant_writer.role));
END $$;
COMMENT ON FUNCTION outbox.grant_writer(regrole) IS 'What a role needs to write events, and no more';

CREATE FUNCTION outbox.grant_monitor(role regrole) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    PERFORM outbox.grant_monitor((SELECT r.rolname::text FROM pg_roles r WHERE r.oid = grant_monitor.role));
END $$;
COMMENT ON FUNCTION outbox.grant_monitor(regrole) IS 'What a role needs to see how the sinks are: the views, with the events in them, and outbox.status';

-- Nothing to PUBLIC, and nothing that ALTER DEFAULT PRIVILEGES gave to others: a trigger on one of these tables would run
-- with the relay's rights.
DO LANGUAGE plpgsql $do$
DECLARE
    command text;
BEGIN
    FOR command IN
        SELECT format('REVOKE ALL ON %s %s FROM %s', o.kind, o.name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::text END)
        FROM (SELECT 'SCHEMA' AS kind, 'outbox' AS name, coalesce(n.nspacl, acldefault('n', n.nspowner)) AS acl, n.nspowner AS owner
              FROM pg_catalog.pg_namespace n WHERE n.nspname = 'outbox'
              UNION ALL
              SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::pg_catalog.regclass::text,
                     coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner)), c.relowner
              FROM pg_catalog.pg_class c
              WHERE c.relnamespace = 'outbox'::pg_catalog.regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
              UNION ALL
              SELECT 'FUNCTION', p.oid::pg_catalog.regprocedure::text, coalesce(p.proacl, acldefault('f', p.proowner)), p.proowner
              FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'outbox'::pg_catalog.regnamespace) o,
             LATERAL aclexplode(o.acl) a
        WHERE a.grantee <> o.owner
        GROUP BY o.kind, o.name, a.grantee
    LOOP
        EXECUTE command;
    END LOOP;
END $do$;

-- =====================================================================================================================
-- Dumps
-- =====================================================================================================================

-- Each partition: the parent alone dumps nothing. Not outbox.homes.
DO LANGUAGE plpgsql $do$
DECLARE
    relation pg_catalog.regclass;
BEGIN
    FOR relation IN
        SELECT c.oid FROM pg_catalog.pg_class c
        WHERE c.relnamespace = 'outbox'::pg_catalog.regnamespace AND c.relkind IN ('r', 'S') AND c.relname <> 'homes' ORDER BY c.oid
    LOOP
        PERFORM pg_catalog.pg_extension_config_dump(relation, '');
    END LOOP;
END $do$;

DO LANGUAGE plpgsql $do$
DECLARE
    w record;
BEGIN
    SELECT * INTO w FROM outbox.worker_state();
    IF NOT w.preloaded THEN
        RAISE WARNING 'outbox is not preloaded: events are stored and nothing is sent'
            USING HINT = 'Add the line  shared_preload_libraries = ''outbox''  to postgresql.conf and restart the server.';
    ELSIF w.no_worker_slot THEN
        RAISE WARNING 'no background worker slot is left for outbox: events are stored and nothing is sent'
            USING HINT = 'Raise max_worker_processes in postgresql.conf and restart the server.';
    END IF;
END $do$;
