-- outbox.add_event: whatever a driver sends finds one of its twelve signatures, and what is stored is what was given.
BEGIN;
SELECT * FROM no_plan();

-- What add_event stored last: key, payload as text or bytes.
CREATE FUNCTION pg_temp.last() RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(aggregate_id, '(none)') || ' ' || coalesce(payload::text, payload_bytes::text, '(none)') FROM outbox.events ORDER BY id DESC LIMIT 1 $$;
CREATE FUNCTION pg_temp.stores(call text, want text, what text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    id uuid;
BEGIN
    EXECUTE 'SELECT outbox.add_event(' || call || ')' INTO id;
    RETURN is(pg_temp.last(), want, what);
EXCEPTION WHEN OTHERS THEN
    RETURN fail(what) || E'\n' || diag(SQLERRM);
END $$;

-- ---- literals and types -----------------------------------------------------------------------------------------------------
SELECT pg_temp.stores($$'k', 'x', '{"a":  1}'$$, 'k {"a":  1}', 'plain literals: text, kept byte for byte');
SELECT pg_temp.stores($$5, 'x', '{}'$$, '5 {}', 'an integer literal as key');
SELECT pg_temp.stores($$5000000000, 'x', '{}'$$, '5000000000 {}', 'a bigint literal as key');
SELECT pg_temp.stores($$5::smallint, 'x', '{}'$$, '5 {}', 'a smallint as key');
SELECT pg_temp.stores($$-7::int, 'x', '{}'::jsonb$$, '-7 {}', 'int and jsonb');
SELECT pg_temp.stores($$NULL, 'x', '{}'$$, '(none) {}', 'NULL as key: no key');
SELECT pg_temp.stores($$'', 'x', '{}'$$, ' {}', 'an empty key is a key');
SELECT pg_temp.stores($$'k', 'x', NULL$$, 'k (none)', 'NULL as payload: a tombstone');
SELECT pg_temp.stores($$NULL, 'x', NULL$$, '(none) (none)', 'NULL for both');
SELECT pg_temp.stores($$'k'::varchar, 'x'::varchar, '{}'::varchar$$, 'k {}', 'varchar, as JDBC sends strings');
SELECT pg_temp.stores($$'k'::varchar(9), 'x'::varchar(9), '{}'::varchar(9)$$, 'k {}', 'varchar with a length');
SELECT pg_temp.stores($$'k'::name, 'x'::name, '{}'$$, 'k {}', 'name');
SELECT pg_temp.stores(k.given || ', ''x'', ' || p.given, k.want || ' ' || p.want, format('%s and %s', k.given, p.given))
FROM (VALUES ($$'k'::text$$, 'k'), ('42::bigint', '42'), ($$'0f3c9e2a-7b1d-4c5e-8f90-123456789abc'::uuid$$, '0f3c9e2a-7b1d-4c5e-8f90-123456789abc')) k(given, want),
     (VALUES ($$'{"b": 1, "a":2}'::text$$, '{"b": 1, "a":2}'), ($$'{"b": 1, "a":2}'::json$$, '{"b": 1, "a":2}'),
             ($$'{"b": 1, "a":2}'::jsonb$$, '{"a": 2, "b": 1}'), ($$'\x00ff'::bytea$$, '\x00ff')) p(given, want);
SELECT pg_temp.stores(format('%s, ''x'', %s', k, p), '(none) (none)', format('NULL as %s and %s', k, p))
FROM unnest('{NULL::text,NULL::bigint,NULL::uuid}'::text[]) k, unnest('{NULL::text,NULL::json,NULL::jsonb,NULL::bytea}'::text[]) p;

-- ---- parameters without a type ------------------------------------------------------------------------------------------------
PREPARE untyped AS SELECT outbox.add_event($1, $2, $3);
EXECUTE untyped('k1', 'x', '{"n": 1}') \g /dev/null
SELECT is(pg_temp.last(), 'k1 {"n": 1}', 'parameters without a type');
EXECUTE untyped(NULL, 'x', NULL) \g /dev/null
SELECT is(pg_temp.last(), '(none) (none)', 'NULL parameters without a type');
SELECT is((SELECT parameter_types::text FROM pg_prepared_statements WHERE name = 'untyped'), '{text,text,text}', 'they become text');
PREPARE named AS SELECT outbox.add_event(aggregate_id => $1, event_type => $2, payload => $3, aggregate_type => $4, topic => $5, headers => $6, event_id => $7);
EXECUTE named('k2', 'x', '[]', 'order', 'orders', '{"h": "v", "n": null}', '0f3c9e2a-7b1d-4c5e-8f90-123456789abc') \g /dev/null
SELECT results_eq($$SELECT aggregate_type, aggregate_id, event_type, payload::text, headers, topic, event_id FROM outbox.events ORDER BY id DESC LIMIT 1$$,
                  $$VALUES ('order', 'k2', 'x', '[]', '{"h": "v", "n": null}'::jsonb, 'orders', '0f3c9e2a-7b1d-4c5e-8f90-123456789abc'::uuid)$$,
                  'named parameters without a type, all of them');
PREPARE typed(int, text, jsonb) AS SELECT outbox.add_event($1, $2, $3);
EXECUTE typed(9, 'x', '{"z": 0}') \g /dev/null
SELECT is(pg_temp.last(), '9 {"z": 0}', 'int and jsonb parameters, as psycopg sends them');
PREPARE with_uuid(uuid, varchar, bytea) AS SELECT outbox.add_event($1, $2, $3);
EXECUTE with_uuid('0f3c9e2a-7b1d-4c5e-8f90-123456789abc', 'x', '\x01') \g /dev/null
SELECT is(pg_temp.last(), '0f3c9e2a-7b1d-4c5e-8f90-123456789abc \x01', 'uuid, varchar and bytea parameters');

-- ---- the four payloads that are not the same ------------------------------------------------------------------------------------
SELECT pg_temp.stores($$'k', 'x', 'null'$$, 'k null', 'JSON null is not NULL');
SELECT pg_temp.stores($$'k', 'x', 'null'::jsonb$$, 'k null', 'JSON null from jsonb');
SELECT pg_temp.stores($$'k', 'x', ''::bytea$$, 'k \x', 'no bytes are not NULL');
SELECT pg_temp.stores($$'k', 'x', '{}'$$, 'k {}', 'an empty object');
SELECT pg_temp.stores(quote_literal('k') || ', ''x'', ' || quote_literal(p), 'k ' || p, 'kept as it is: ' || left(p, 40))
FROM (VALUES ('{"a":"he said \"hi\" \\ /"}'), ('[[],[{"b":[]}]]'), ('"just a string"'), ('123'), (repeat('[', 200) || repeat(']', 200)),
             ('  { "b" : 1 , "b" : 2 }  '), ('{"a":"x\u0000y"}'), ('{"a":"\ud83d"}'), ('{"ключ":"значение"}'), ('1e400')) v(p);

-- ---- what the server sets --------------------------------------------------------------------------------------------------------
SELECT outbox.add_event('k', 'x', '{}') AS event \gset
SELECT is((SELECT event_id FROM outbox.events ORDER BY id DESC LIMIT 1), :'event'::uuid, 'it returns the event_id');
SELECT is(substr(:'event', 15, 1), '7', 'which is a UUID of version 7');
SELECT ok(('x' || replace(left(:'event', 13), '-', ''))::bit(48)::bigint BETWEEN extract(epoch FROM now()) * 1000 - 1
          AND extract(epoch FROM clock_timestamp()) * 1000, 'with the time of now');
SELECT is(outbox.add_event('k', 'x', '{}', event_id => '11111111-1111-1111-1111-111111111111'), '11111111-1111-1111-1111-111111111111', 'a given event_id is kept');
SELECT is(outbox.add_event('k', 'x', '{}', event_id => '11111111-1111-1111-1111-111111111111'), '11111111-1111-1111-1111-111111111111', 'and not checked for uniqueness');
SELECT is(count(DISTINCT e), 1000::bigint, 'a thousand ids in one statement differ') FROM (SELECT outbox.add_event('many', 'x', i::text) AS e FROM generate_series(1, 1000) i) x;
SELECT is((SELECT array_agg(payload::text::int ORDER BY id) FROM outbox.events WHERE aggregate_id = 'many'), ARRAY(SELECT generate_series(1, 1000)),
          'the order of the calls is the order of the log');
SELECT is((SELECT array_agg(payload::text::int ORDER BY event_id) FROM outbox.events WHERE aggregate_id = 'many'), ARRAY(SELECT generate_series(1, 1000)),
          'and of the ids that were made');
SELECT is_empty($$SELECT id FROM outbox.events WHERE xid <> pg_current_xact_id()$$, 'xid is the transaction''s');
SELECT is_empty($$SELECT id FROM outbox.events WHERE created_at NOT BETWEEN now() AND clock_timestamp()$$, 'created_at is the time of the call');
SELECT cmp_ok((SELECT count(DISTINCT created_at) FROM outbox.events WHERE aggregate_id = 'many'), '>', 1::bigint, 'not of the transaction''s begin');
SELECT is_empty($$SELECT id FROM outbox.events WHERE segment <> (SELECT last_value % 16 FROM outbox.turn)$$, 'segment is the current one');

-- The partition is chosen without a look at its constraint.
DO $$ BEGIN
    FOR turn IN 0..33 LOOP
        PERFORM setval('outbox.turn', turn), outbox.add_event('turning', 'x', turn::text);
    END LOOP;
END $$;
SELECT is((SELECT array_agg(payload::text::int ORDER BY id) FROM outbox.events WHERE aggregate_id = 'turning'), ARRAY(SELECT generate_series(0, 33)),
          'events of 34 turns of the ring, in their order');
SELECT is_empty($$SELECT id FROM outbox.events WHERE tableoid <> ('outbox.events_' || segment)::regclass
                  OR segment <> CASE WHEN aggregate_id = 'turning' THEN payload::text::int % 16 ELSE 0 END$$, 'each is in the segment of its turn, and in that segment''s partition');
SELECT setval('outbox.turn', 0) \g /dev/null

-- ---- what else the tables' owner asks for -------------------------------------------------------------------------------------
ALTER TABLE outbox.events ADD CONSTRAINT cheap CHECK (aggregate_id <> 'dear');
CREATE UNIQUE INDEX ON outbox.events_0 (lower(aggregate_id)) WHERE event_type = 'only';
SELECT throws_ok($$SELECT outbox.add_event('dear', 'x', '{}')$$, '23514', NULL, 'a CHECK of the owner''s holds');
SELECT lives_ok($$SELECT outbox.add_event('k', 'only', '{}')$$, 'an index of the owner''s, on an expression, is kept up');
SELECT throws_ok($$SELECT outbox.add_event('K', 'only', '{}')$$, '23505', NULL, 'so a unique one holds');
SAVEPOINT wider;
ALTER TABLE outbox.events ADD COLUMN note text;
SELECT throws_like($$SELECT outbox.add_event('k', 'x', '{}')$$, '%has 13 columns, the library knows 12%', 'a column of the owner''s is refused');
ROLLBACK TO wider;
SELECT lives_ok($$SELECT outbox.add_event('k', 'x', '{}')$$, 'and without it all is as before');

-- ---- large values --------------------------------------------------------------------------------------------------------------
CREATE TEMP TABLE large AS SELECT repeat('ключ', 100) AS key, '"' || repeat('x', 100000) || '"' AS payload;
SELECT outbox.add_event(key, 'x', payload) FROM large \g /dev/null
SELECT is(pg_temp.last(), (SELECT key || ' ' || payload FROM large), 'compressed and toasted arguments');
SELECT outbox.add_event(e.aggregate_id, e.event_type, e.payload) FROM (SELECT * FROM outbox.events ORDER BY id DESC LIMIT 1) e \g /dev/null
SELECT is(pg_temp.last(), (SELECT key || ' ' || payload FROM large), 'also when they come from the log itself');

-- ---- lock_keys ------------------------------------------------------------------------------------------------------------------
CREATE VIEW pg_temp.key_locks AS SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND classid = 1869968482 AND pid = pg_backend_pid();
SELECT is((SELECT n FROM pg_temp.key_locks), 0::bigint, 'no lock on keys by default');
SET LOCAL outbox.lock_keys = on;
SELECT outbox.add_event('locked', 'x', '{}'), outbox.add_event('locked', 'x', '{}'), outbox.add_event('locked 2', 'x', '{}'), outbox.add_event(NULL, 'x', '{}') \g /dev/null
SELECT is((SELECT n FROM pg_temp.key_locks), 2::bigint, 'with outbox.lock_keys one lock for each key');
INSERT INTO outbox.events (aggregate_id, event_type) VALUES ('locked 3', 'x'), ('locked', 'x'), (NULL, 'x');
SELECT is((SELECT n FROM pg_temp.key_locks), 3::bigint, 'also for INSERT');
SET LOCAL outbox.lock_keys = off;

-- ---- where the tables are is not remembered for too long -----------------------------------------------------------------------
SAVEPOINT elsewhere;
ALTER TABLE outbox.events_0 RENAME TO events_zero;
SELECT throws_ok($$SELECT outbox.add_event('k', 'x', '{}')$$, '42P01', 'outbox.events_0 does not exist', 'a partition that was renamed is not found');
ROLLBACK TO elsewhere;
SELECT lives_ok($$SELECT outbox.add_event('k', 'x', '{}')$$, 'and found again under its name');
SET LOCAL client_min_messages = error;
DROP EXTENSION outbox CASCADE;
CREATE EXTENSION outbox;
SELECT lives_ok($$SELECT outbox.add_event('first', 'x', '{}')$$, 'add_event writes to an extension that is created again');
SELECT is((SELECT array_agg(aggregate_id) FROM outbox.events), '{first}', 'to its tables');

SELECT * FROM finish();
ROLLBACK;
