-- Writing events, as an application does it. The workings are in tests/pgtap.
\set SHOW_CONTEXT never
SET client_min_messages = error;
DROP EXTENSION IF EXISTS outbox CASCADE;
CREATE EXTENSION outbox;
RESET client_min_messages;

CREATE TABLE payments (id bigint PRIMARY KEY, state text NOT NULL);
CREATE VIEW log AS
    SELECT aggregate_type, aggregate_id, event_type, payload, payload_bytes, headers, topic FROM outbox.events ORDER BY id;

-- in the caller's transaction
BEGIN;
INSERT INTO payments VALUES (1, 'authorized');
SELECT outbox.add_event(1, 'payment.authorized', '{"amount": 100}', 'payment') IS NOT NULL AS added;
COMMIT;
BEGIN;
UPDATE payments SET state = 'captured' WHERE id = 1;
SELECT outbox.add_event(1, 'payment.captured', '{"amount": 100}', 'payment') IS NOT NULL AS added;
ROLLBACK;
TABLE log;

-- every kind of key and payload
SELECT outbox.add_event('k', 'x', '{"b":1,  "a":2}') IS NOT NULL AS text,
       outbox.add_event('k', 'x', '{"b":1,  "a":2}'::json) IS NOT NULL AS json,
       outbox.add_event('k', 'x', '{"b":1,  "a":2}'::jsonb) IS NOT NULL AS jsonb,
       outbox.add_event('k', 'x', '\x00ff'::bytea) IS NOT NULL AS bytea,
       outbox.add_event('k', 'x', NULL) IS NOT NULL AS tombstone;
SELECT outbox.add_event(42, 'x', '{}', headers => '{"trace": "abc", "none": null}', topic => 'audit',
                        event_id => '11111111-1111-1111-1111-111111111111');
SELECT outbox.add_event('22222222-2222-2222-2222-222222222222'::uuid, 'x', '{}') IS NOT NULL AS uuid_key,
       outbox.add_event(NULL, 'x', '{}') IS NOT NULL AS no_key;
TABLE log;

-- a plain INSERT: the same
INSERT INTO outbox.events (event_id, aggregate_type, aggregate_id, event_type, payload)
    VALUES ('33333333-3333-3333-3333-333333333333', 'payment', '1', 'payment.refunded', '{}') RETURNING event_id;
INSERT INTO outbox.events (event_id, aggregate_id, event_type) VALUES (NULL, 'k', 'x') RETURNING event_id IS NOT NULL AS event_id, payload;
COPY outbox.events (aggregate_id, event_type, payload) FROM stdin;
copied	x	{"n": 1}
\.
INSERT INTO outbox.events (id, aggregate_id, event_type) VALUES (7, 'k', 'x') RETURNING id = 7 AS given_id_kept;

-- what is refused
SELECT outbox.add_event('k', NULL, '{}');
SELECT outbox.add_event('k', 'a/b', '{}');
SELECT outbox.add_event('k', 'x', '{');
SELECT outbox.add_event('k', 'x', '');
SELECT outbox.add_event('k', 'x', '{}', aggregate_type => 'a b');
SELECT outbox.add_event('k', 'x', '{}', topic => 'a b');
SELECT outbox.add_event('k', 'x', '{}', headers => '{"a": 1}');
SELECT outbox.add_event('k', 'x', '{}', headers => '{"id": "x"}');
SELECT outbox.add_event('k', 'x', to_jsonb(repeat('x', 1000000)));
INSERT INTO outbox.events (event_type, payload, payload_bytes) VALUES ('x', '{}', '');
INSERT INTO outbox.events (aggregate_id) VALUES ('k');
INSERT INTO outbox.events (event_type, segment) VALUES ('x', 5);

-- later
SELECT outbox.add_event(1, 'payment.reminded', '{}', deliver_at => '2099-01-01 00:00+00', event_id => '44444444-4444-4444-4444-444444444444');
SELECT event_id, aggregate_id, event_type, deliver_at AT TIME ZONE 'UTC' AS deliver_at FROM outbox.scheduled;
SELECT outbox.cancel('44444444-4444-4444-4444-444444444444');
SELECT outbox.cancel('44444444-4444-4444-4444-444444444444');
SELECT event_id, action, reason FROM outbox.discarded;
SELECT outbox.add_event('k', 'x', '{}', deliver_at => 'infinity');

-- writers of one key that take turns
SHOW outbox.lock_keys;
SET outbox.lock_keys = on;
SELECT count(outbox.add_event('k' || i, 'x', '{}')) FROM generate_series(1, 10) i;
RESET outbox.lock_keys;

-- the consumer's side
SELECT outbox.inbox_claim('mail', '11111111-1111-1111-1111-111111111111');
SELECT outbox.inbox_claim('mail', '11111111-1111-1111-1111-111111111111');
SELECT outbox.inbox_claim('ledger', '11111111-1111-1111-1111-111111111111');

DROP VIEW log;
DROP TABLE payments;
DROP EXTENSION outbox;
