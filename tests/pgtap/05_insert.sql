-- INSERT into outbox.events: the checks and the server's columns as with add_event, whatever writes the rows.
BEGIN;
SELECT * FROM no_plan();

-- ---- the server's columns -----------------------------------------------------------------------------------------------------
INSERT INTO outbox.events (event_id, aggregate_id, event_type, payload) VALUES (NULL, 'null id', 'x', '{}'), ('11111111-1111-1111-1111-111111111111', 'given id', 'x', '{}');
SELECT is((SELECT substr(event_id::text, 15, 1) FROM outbox.events WHERE aggregate_id = 'null id'), '7', 'event_id NULL: the default');
SELECT is((SELECT event_id::text FROM outbox.events WHERE aggregate_id = 'given id'), '11111111-1111-1111-1111-111111111111', 'event_id given: kept');
INSERT INTO outbox.events (id, aggregate_id, event_type) VALUES (7, 'own id', 'x');
INSERT INTO outbox.events (id, aggregate_id, event_type) VALUES (1000000, 'large id', 'x');
INSERT INTO outbox.events (created_at, aggregate_id, event_type) VALUES ('2000-01-01', 'own time', 'x');
SELECT results_eq($$SELECT id FROM outbox.events WHERE aggregate_id IN ('own id', 'large id', 'own time') ORDER BY id$$,
                  $$SELECT generate_series(last_value - 2, last_value) FROM outbox.events_id_seq$$, 'an id that the owner gives is replaced by the next one');
SELECT is_empty($$SELECT 1 FROM outbox.events WHERE created_at < now()$$, 'created_at too');
SELECT is_empty($$SELECT 1 FROM outbox.events WHERE xid <> pg_current_xact_id()$$, 'xid is the transaction''s');
INSERT INTO outbox.events (xid, aggregate_id, event_type) VALUES (pg_current_xact_id(), 'own xid', 'x');
SELECT is((SELECT id FROM outbox.events WHERE aggregate_id = 'own xid'), (SELECT last_value FROM outbox.events_id_seq), 'also where it is given');
SELECT throws_ok($$INSERT INTO outbox.events (segment, event_type) VALUES (3, 'x')$$, '22023', 'segment is given by the server', 'segment cannot be given');
SELECT throws_ok($$INSERT INTO outbox.events_3 (event_type) VALUES ('x')$$, '23514', NULL, 'nor by inserting into a partition that is not the current one');
SELECT lives_ok($$INSERT INTO outbox.events_0 (event_type) VALUES ('x')$$, 'the current partition takes events');
SELECT throws_ok($$INSERT INTO outbox.events_0 (event_type) VALUES ('a/b')$$, '22023', NULL, 'with the same checks');

-- ---- many rows ------------------------------------------------------------------------------------------------------------------
INSERT INTO outbox.events (aggregate_id, event_type, payload) SELECT 'many', 'x', to_json(i) FROM generate_series(1, 100000) i;
SELECT is((SELECT count(*) FROM outbox.events WHERE aggregate_id = 'many'), 100000::bigint, 'INSERT … SELECT of 100,000 rows');
SELECT ok((SELECT max(id) - min(id) = 99999 FROM outbox.events WHERE aggregate_id = 'many'), 'each with one id drawn, not two');
SELECT is_empty($$SELECT 1 FROM (SELECT payload::text::int AS n, lag(payload::text::int) OVER (ORDER BY id) AS before FROM outbox.events WHERE aggregate_id = 'many') x
                  WHERE n <> before + 1$$, 'in the order of the query');
SELECT throws_ok($$INSERT INTO outbox.events (event_type) SELECT CASE WHEN i = 999 THEN 'a/b' ELSE 'x' END FROM generate_series(1, 1000) i$$, '22023',
                 'event_type "a/b" has a character that is not allowed in it', 'one bad row among many is refused');
INSERT INTO outbox.events (aggregate_id, event_type, payload) SELECT 'sorted', 'x', to_json(i) FROM generate_series(1, 100) i ORDER BY i DESC;
SELECT is((SELECT payload::text FROM outbox.events WHERE aggregate_id = 'sorted' ORDER BY id LIMIT 1), '100', 'ORDER BY of the query counts');
WITH moved AS (INSERT INTO outbox.events (aggregate_id, event_type) VALUES ('cte', 'x') RETURNING id, event_id)
SELECT isnt(event_id, NULL, 'RETURNING in a CTE') FROM moved;
INSERT INTO outbox.events (aggregate_id, event_type) VALUES ('conflict', 'x') ON CONFLICT DO NOTHING;
SELECT is((SELECT count(*) FROM outbox.events WHERE aggregate_id = 'conflict'), 1::bigint, 'ON CONFLICT DO NOTHING, as some ORMs write it');
PREPARE orm AS INSERT INTO outbox.events (event_id, aggregate_type, aggregate_id, event_type, payload, headers) VALUES ($1, $2, $3, $4, $5, $6) RETURNING id, event_id;
EXECUTE orm(NULL, 'order', 'prepared', 'x', '{}', '{"h": "v"}') \g /dev/null
EXECUTE orm(gen_random_uuid(), 'order', 'prepared', 'x', '{}', NULL) \g /dev/null
SELECT is((SELECT count(DISTINCT id) FROM outbox.events WHERE aggregate_id = 'prepared'), 2::bigint, 'a prepared INSERT');

-- ---- COPY -----------------------------------------------------------------------------------------------------------------------
COPY outbox.events (aggregate_id, event_type, payload) FROM stdin;
copied	x	{"n": 1}
copied	x	{"n": 2}
\.
SELECT results_eq($$SELECT payload::text FROM outbox.events WHERE aggregate_id = 'copied' ORDER BY id$$, $$VALUES ('{"n": 1}'), ('{"n": 2}')$$, 'COPY');
SELECT is_empty($$SELECT 1 FROM outbox.events WHERE aggregate_id = 'copied' AND (xid <> pg_current_xact_id() OR created_at < now())$$, 'with the server''s columns');

-- ---- from functions and triggers --------------------------------------------------------------------------------------------------
CREATE TEMP TABLE orders (id int PRIMARY KEY, state text);
CREATE FUNCTION pg_temp.announce() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM outbox.add_event(NEW.id, 'order.' || NEW.state, to_jsonb(NEW), 'order');
    RETURN NULL;
END $$;
CREATE TRIGGER announce AFTER INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION pg_temp.announce();
INSERT INTO orders SELECT i, 'made' FROM generate_series(1, 3) i;
UPDATE orders SET state = 'paid' WHERE id = 2;
SELECT results_eq($$SELECT aggregate_id, event_type FROM outbox.events WHERE aggregate_type = 'order' AND event_type LIKE 'order.%' ORDER BY id$$,
                  $$VALUES ('1', 'order.made'), ('2', 'order.made'), ('3', 'order.made'), ('2', 'order.paid')$$, 'a plpgsql trigger writes events');
CREATE FUNCTION pg_temp.in_loop() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..500 LOOP
        INSERT INTO outbox.events (aggregate_id, event_type, payload) VALUES ('loop', 'x', to_json(i));
        PERFORM outbox.add_event('loop', 'x', to_json(i + 0.5));
    END LOOP;
END $$;
SELECT pg_temp.in_loop() \g /dev/null
SELECT is_empty($$SELECT 1 FROM (SELECT payload::text::numeric AS n, lag(payload::text::numeric) OVER (ORDER BY id) AS before FROM outbox.events WHERE aggregate_id = 'loop') x
                  WHERE n <> before + 0.5$$, 'INSERT and add_event in turn keep the order of the calls');
INSERT INTO outbox.events (aggregate_id, event_type, payload) SELECT 'nested', 'x', to_json(outbox.add_event('nested too', 'x', to_json(i))) FROM generate_series(1, 3) i;
SELECT is((SELECT count(DISTINCT id) FROM outbox.events WHERE aggregate_id LIKE 'nested%'), 6::bigint, 'an INSERT whose values write events');

-- ---- what a restore brings ----------------------------------------------------------------------------------------------------------
INSERT INTO outbox.events (id, xid, event_id, aggregate_id, event_type, payload, created_at, segment)
    VALUES (5000001, '3', '22222222-2222-2222-2222-222222222222', 'restored', 'not / checked', '{}', '2001-01-01', 5),
           (5000002, pg_current_xact_id(), '22222222-2222-2222-2222-222222222222', 'restored', 'not / checked', '{}', '2001-01-01', 5);
SELECT results_eq($$SELECT id, segment, created_at FROM outbox.events WHERE aggregate_id = 'restored' ORDER BY id$$,
                  $$VALUES (5000001::bigint, 5::smallint, '2001-01-01'::timestamptz), (5000002, 5::smallint, '2001-01-01')$$,
                  'a row with all its columns is stored as it is, also should its xid be the current one');
INSERT INTO outbox.scheduled (id, xid, event_id, aggregate_id, event_type, created_at, deliver_at)
    VALUES (5000001, '3', '22222222-2222-2222-2222-222222222222', 'restored', 'not / checked', '2001-01-01', '2099-01-01');
SELECT is((SELECT id FROM outbox.scheduled WHERE aggregate_id = 'restored'), 5000001::bigint, 'in outbox.scheduled too');
INSERT INTO outbox.segments (turn, segment, fence, closed_at) VALUES (0, 0, '999999999', now()), (1, 1, NULL, NULL);
SELECT results_eq($$SELECT turn, fence FROM outbox.segments ORDER BY turn$$, $$VALUES (0::bigint, pg_current_xact_id()), (1, NULL)$$,
                  'its segments replace the first one, and their fences become this cluster''s');
-- A dump restored as a whole: COPY of every column in one transaction.
COPY outbox.events_7 (id, xid, event_id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, headers, topic, created_at, segment) FROM stdin;
6000001	800	22222222-2222-2222-2222-222222222222	\N	restored	x	{}	\N	\N	\N	2001-01-01	7
\.
SELECT is((SELECT xid::text FROM outbox.events WHERE id = 6000001), '800', 'COPY into a partition, as pg_restore does it');

-- ---- TRUNCATE by hand -----------------------------------------------------------------------------------------------------------------
SELECT lives_ok('TRUNCATE outbox.events', 'TRUNCATE where nothing is pending for anybody');
SET client_min_messages = error;
CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
SELECT outbox.add_event('k', 'x', '{}') \g /dev/null
SELECT throws_ok('TRUNCATE outbox.events', '55006', 'outbox.events has pending events', 'TRUNCATE with a pending event is refused');
SELECT throws_ok('TRUNCATE outbox.events_0', '55006', 'outbox.events has pending events', 'of a partition too');

SELECT * FROM finish();
ROLLBACK;
