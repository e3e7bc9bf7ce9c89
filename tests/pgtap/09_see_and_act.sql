-- outbox.lag and the views beside it tell what the predicate of the log says; redrive, discard and cancel do what they record.
SELECT outbox.add_event('k' || i % 7, 'x', '{}', CASE WHEN i % 3 = 0 THEN 'order' ELSE 'payment' END) FROM generate_series(1, 60) i \g /dev/null
BEGIN;
SELECT * FROM no_plan();
SET client_min_messages = error;
CREATE SERVER one FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
CREATE SERVER four FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', lanes '4');
CREATE SERVER orders FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'order/*', lanes '2');
SELECT sink_id AS one FROM outbox.sinks WHERE name = 'one' \gset

-- ---- pending and lag ----------------------------------------------------------------------------------------------------------
-- The reference, evaluated anew: the count by the view, and by the predicate written out for one lane after the other.
CREATE VIEW pg_temp.by_view AS
    SELECT v.name AS sink, (SELECT count(*) FROM outbox.pending p WHERE p.sink = v.name) AS pending FROM outbox.servers v;
CREATE VIEW pg_temp.by_predicate AS
    SELECT v.name AS sink, (SELECT count(*) FROM outbox.events e JOIN outbox.lane_progress p ON p.lane = outbox.lane_of(e.aggregate_id, e.id, p.lanes)
        WHERE p.sink = v.name AND outbox.takes(v.events, e.aggregate_type, e.event_type)
          AND (e.id > p."position" OR e.id > p.floor AND NOT pg_visible_in_snapshot(e.xid, p.seen)
               AND NOT coalesce(e.id <= p.late_position AND pg_visible_in_snapshot(e.xid, p.late_seen), false))) AS pending
    FROM outbox.servers v;
CREATE FUNCTION pg_temp.agree(what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN NEXT results_eq('SELECT sink, pending FROM outbox.lag ORDER BY sink', 'SELECT sink, pending FROM pg_temp.by_view ORDER BY sink', 'outbox.lag counts what outbox.pending lists: ' || what);
    RETURN NEXT results_eq('SELECT sink, pending FROM outbox.lag ORDER BY sink', 'SELECT sink, pending FROM pg_temp.by_predicate ORDER BY sink', 'and what the predicate says: ' || what);
END $$;
SELECT results_eq('SELECT sink, pending FROM outbox.lag ORDER BY sink', $$VALUES ('four', 60::bigint), ('one', 60), ('orders', 20)$$, 'everything is pending for a new sink');
SELECT pg_temp.agree('all new');
CREATE FUNCTION pg_temp.progress(lane int, pos bigint, seen pg_snapshot, next_xid xid8, late_position bigint DEFAULT NULL, late_seen pg_snapshot DEFAULT NULL, published bigint DEFAULT 0)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO outbox.progress (sink_id, epoch, lane, batch, "position", seen, next_xid, late_position, late_seen, events, published)
    SELECT p.sink_id, p.epoch, p.lane, p.batch + 1, $2, $3, $4, $5, $6, 0, $7 FROM outbox.lane_progress p WHERE p.lane = $1 $$;
SELECT pg_temp.progress(l, 20 + 5 * l, pg_current_snapshot(), pg_current_xact_id(), published => 20) FROM generate_series(0, 3) l \g /dev/null
SELECT pg_temp.agree('lanes at different positions');
-- The log's one transaction as one that the lanes could not see when they read: all of it is late.
SELECT xid AS x FROM outbox.events LIMIT 1 \gset
SELECT format('%s:%s:%s', :'x', :'x'::bigint + 1, :'x') AS unseen, format('%1$s:%1$s:', :'x'::bigint + 1) AS seen \gset
SELECT pg_temp.progress(l, 30, :'unseen', (:'x'::bigint + 1)::text::xid8) FROM generate_series(0, 3) l \g /dev/null
SELECT is((SELECT pending FROM outbox.lag WHERE sink = 'one'), 60::bigint, 'late events are pending');
SELECT pg_temp.agree('late events');
SELECT pg_temp.progress(l, 30, :'unseen', (:'x'::bigint + 1)::text::xid8, 12, :'seen') FROM generate_series(0, 3) l \g /dev/null
SELECT is((SELECT pending FROM outbox.lag WHERE sink = 'one'), 48::bigint, 'but for those that are done');
SELECT pg_temp.agree('late events half done');
UPDATE outbox.sinks SET floor = 25;
SELECT is((SELECT pending FROM outbox.lag WHERE sink = 'one'), 35::bigint, 'and none up to the floor');
SELECT pg_temp.agree('a floor');
UPDATE outbox.sinks SET floor = 0;
SELECT cmp_ok((SELECT oldest_pending_age FROM outbox.lag WHERE sink = 'one'), '>', interval '0', 'the oldest has an age');
SELECT pg_temp.progress(l, 60, :'seen', (:'x'::bigint + 1)::text::xid8, published => 60) FROM generate_series(0, 3) l \g /dev/null
SELECT results_eq('SELECT pending, oldest_pending_age, parked, oldest_parked_age, dead FROM outbox.lag', $$SELECT 0::bigint, '0'::interval, 0::bigint, '0'::interval, 0::bigint FROM generate_series(1, 3)$$,
                  'nothing pending: zeros, never NULL');
SELECT pg_temp.agree('nothing');
SELECT results_eq($$SELECT sink, lane, "position", published FROM outbox.relays WHERE sink = 'orders' ORDER BY lane$$, $$VALUES ('orders', 0, 60::bigint, 60::bigint), ('orders', 1, 60, 60)$$, 'outbox.relays');

-- ---- states ---------------------------------------------------------------------------------------------------------------------
SELECT CASE WHEN preloaded THEN 'starting' ELSE 'no_worker' END AS new_state, CASE WHEN preloaded THEN 'paused' ELSE 'no_worker' END AS paused_state FROM outbox.worker_state() \gset
SELECT results_eq('SELECT DISTINCT state FROM outbox.lag', format('VALUES (%L)', :'new_state'), 'a sink that nobody but us can see yet: ' || :'new_state');
SELECT outbox.pause('one') \g /dev/null
SELECT is((SELECT state FROM outbox.lag WHERE sink = 'one'), :'paused_state', 'paused');
UPDATE outbox.sinks SET halted = 'because' WHERE name = 'four';
SELECT results_eq($$SELECT state, last_error FROM outbox.lag WHERE sink = 'four'$$, $$VALUES ('halted', 'because')$$, 'halted, with the reason');
SELECT results_eq($$SELECT DISTINCT state FROM outbox.relays WHERE sink = 'four'$$, $$VALUES ('halted')$$, 'its relays too');
UPDATE outbox.sinks SET halted = NULL WHERE name = 'four';

-- ---- parked (B40) ---------------------------------------------------------------------------------------------------------------------
INSERT INTO outbox.parked_events (sink_id, id, event_id, aggregate_type, aggregate_id, event_type, payload, created_at, destination, reason, attempts, next_attempt_at, last_error)
    SELECT :one, e.id, e.event_id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.created_at, 'payments',
           CASE e.id WHEN 1 THEN 'dead' WHEN 2 THEN 'retry' WHEN 3 THEN 'dead' ELSE 'behind' END, CASE WHEN e.id <= 3 THEN 1 ELSE 0 END,
           CASE e.id WHEN 2 THEN now() + interval '1 hour' END, CASE WHEN e.id <= 3 THEN 'too large: 2000000 bytes' END
    FROM outbox.events e WHERE e.id <= 5;
SELECT event_id AS e1 FROM outbox.events WHERE id = 1 \gset
SELECT event_id AS e2 FROM outbox.events WHERE id = 2 \gset
SELECT event_id AS e3 FROM outbox.events WHERE id = 3 \gset
SELECT event_id AS e4 FROM outbox.events WHERE id = 4 \gset
SELECT event_id AS e9 FROM outbox.events WHERE id = 9 \gset
SELECT results_eq($$SELECT parked, dead FROM outbox.lag WHERE sink = 'one'$$, 'VALUES (3::bigint, 2::bigint)', 'outbox.lag: dead ones are not among the parked');
SELECT ok((SELECT oldest_parked_age > '0' FROM outbox.lag WHERE sink = 'one'), 'with the age of the oldest');
SELECT results_eq($$SELECT sink, id, topic, reason, attempts, last_error FROM outbox.parked WHERE reason <> 'behind' ORDER BY id$$,
                  $$VALUES ('one', 1::bigint, 'payments', 'dead', 1, 'too large: 2000000 bytes'), ('one', 2, 'payments', 'retry', 1, 'too large: 2000000 bytes'), ('one', 3, 'payments', 'dead', 1, 'too large: 2000000 bytes')$$,
                  'outbox.parked');
SELECT results_eq($$SELECT ok, detail FROM outbox.health WHERE "check" = 'sink one: parked'$$, $$VALUES (false, '2 dead, 3 that are tried again, the oldest for 00:00:00')$$, 'outbox.health');
SELECT alike((SELECT hint FROM outbox.health WHERE "check" = 'sink one: parked'), $$%outbox.redrive('one')%$$, 'with what to do');

-- ---- status ---------------------------------------------------------------------------------------------------------------------
SELECT results_eq(format($$SELECT sink, id, state, detail FROM outbox.status(%L)$$, :'e1'),
                  $$VALUES ('four', 1::bigint, 'published', 'between these two times'), ('one', 1, 'parked', 'dead, tried 1 times: too large: 2000000 bytes'), ('orders', 1, 'not for this sink', 'the sink''s option "events" leaves it out')$$,
                  'outbox.status: a row per sink');
SELECT is((SELECT state || ': ' || detail FROM outbox.status(:'e4') WHERE sink = 'one'), 'parked: behind', 'parked behind another');
SELECT ok((SELECT published_after <= published_before AND published_after >= created_at FROM outbox.status(:'e9') s, outbox.events e WHERE s.sink = 'one' AND e.event_id = :'e9'), 'published between two times');
SELECT is((SELECT published_before FROM outbox.status(:'e9') WHERE sink = 'one'),
          (SELECT recorded_at FROM outbox.progress WHERE sink_id = :one AND batch = 1), 'of the first progress that covers it');
SELECT outbox.add_event('new', 'x', '{}', 'order') AS pending \gset
SELECT results_eq(format('SELECT state FROM outbox.status(%L)', :'pending'), $$VALUES ('pending'), ('pending'), ('pending')$$, 'pending');
SELECT results_eq($$SELECT state, detail FROM outbox.status('99999999-9999-9999-9999-999999999999')$$,
                  $$SELECT 'gone', 'not in the log: older than outbox.retention, or never written' FROM generate_series(1, 3)$$, 'gone');
SELECT outbox.add_event('odd', 'x', '{}', event_id => x::uuid) FROM unnest(ARRAY['00000000-0000-7000-8000-000000000001', 'ffffffff-ffff-7fff-bfff-ffffffffffff',
    'c0ffee00-0000-4000-8000-000000000000', '00000000-0000-0000-0000-000000000000']) x \g /dev/null
SELECT is_empty($$SELECT 1 FROM outbox.events e WHERE NOT EXISTS (SELECT FROM outbox.find_event(e.event_id) f WHERE f.id = e.id)$$, 'every event is found by its id, also by one that was not made here');
SELECT is((SELECT count(*) FROM outbox.status('c0ffee00-0000-4000-8000-000000000000') WHERE state = 'pending'), 2::bigint, 'by outbox.status too');
SELECT outbox.add_event('later', 'x', '{}', deliver_at => '2099-01-01 00:00+00') AS later \gset
SELECT results_eq(format('SELECT state FROM outbox.status(%L)', :'later'), $$VALUES ('pending'), ('pending'), ('pending')$$, 'scheduled: pending');

-- ---- redrive, discard -------------------------------------------------------------------------------------------------------------
SELECT is(outbox.redrive('one', :'e3'), 1::bigint, 'redrive of one event');
SELECT results_eq('SELECT id, reason FROM outbox.parked ORDER BY id', $$VALUES (1::bigint, 'dead'), (2, 'retry'), (3, 'retry'), (4, 'behind'), (5, 'behind')$$, 'that one');
SELECT ok((SELECT next_attempt_at <= clock_timestamp() FROM outbox.parked WHERE id = 3), 'is due at once');
SELECT is(outbox.redrive('one'), 1::bigint, 'redrive of all');
SELECT results_eq('SELECT id, reason FROM outbox.parked ORDER BY id', $$VALUES (1::bigint, 'retry'), (2, 'retry'), (3, 'retry'), (4, 'behind'), (5, 'behind')$$, 'that are dead');
SELECT ok((SELECT next_attempt_at > now() + interval '30 minutes' FROM outbox.parked WHERE id = 2), 'and no other');
SELECT is(outbox.redrive('one'), 0::bigint, 'none is left');
SELECT throws_ok(format($$SELECT outbox.redrive('one', %L)$$, :'e9'), 'P0002', format('sink "one" has no dead event %s', :'e9'), 'redrive of an event that is not parked');
SELECT throws_ok($$SELECT outbox.redrive('no such')$$, '42704', 'there is no sink "no such"', 'or of a sink that is not there');
SELECT is(outbox.discard('one', :'e1', 'sent by hand'), 1::bigint, 'discard');
SELECT is_empty('SELECT 1 FROM outbox.parked WHERE id = 1', 'takes the event away');
SELECT results_eq('SELECT sink, id, event_id, aggregate_id, topic, event_type, action, reason, discarded_by FROM outbox.discarded',
                  format($$VALUES ('one', 1::bigint, %L::uuid, 'k1', 'payments', 'x', 'discarded', 'sent by hand', session_user::text COLLATE "default")$$, :'e1'), 'and keeps on record what, why and by whom');
SELECT is((SELECT state FROM outbox.status(:'e1') WHERE sink = 'one'), 'discarded', 'outbox.status knows');
SELECT is((SELECT state FROM outbox.status(:'e1') WHERE sink = 'four'), 'published', 'for that sink alone');
SELECT throws_ok(format($$SELECT outbox.discard('one', %L, 'x')$$, :'e9'), 'P0002', format('sink "one" has no parked event %s', :'e9'), 'what is not parked cannot be discarded');
SELECT throws_ok(format($$SELECT outbox.discard('one', %L, %s)$$, :'e2', r), '22004', 'event_id and reason must be given', 'nor without a reason: ' || r) FROM unnest(ARRAY['NULL', '''''', ''' ''']) r;
SELECT throws_ok($$SELECT outbox.discard('no such', gen_random_uuid(), 'x')$$, '42704', NULL, 'nor for a sink that is not there');

-- ---- cancel -------------------------------------------------------------------------------------------------------------------------
SELECT is(outbox.cancel(:'later'), true, 'cancel');
SELECT is(outbox.cancel(:'later'), false, 'twice: false');
SELECT is(outbox.cancel(:'e9'), false, 'an event that is not scheduled: false');
SELECT is_empty('SELECT 1 FROM outbox.scheduled', 'it is gone');
SELECT results_eq($$SELECT sink, action, discarded_by FROM outbox.discarded WHERE action = 'cancelled'$$, $$VALUES (NULL::text, 'cancelled', session_user::text COLLATE "default")$$, 'and on record');
SELECT results_eq(format('SELECT DISTINCT state FROM outbox.status(%L)', :'later'), $$VALUES ('cancelled')$$, 'outbox.status knows');
SAVEPOINT s;
SELECT outbox.add_event('later', 'x', '{}', deliver_at => '2099-01-01') AS later \gset
SAVEPOINT t;
SELECT outbox.cancel(:'later') \g /dev/null
ROLLBACK TO t;
SELECT is(outbox.cancel(:'later'), true, 'a cancel that was rolled back counts for nothing');

-- ---- inbox --------------------------------------------------------------------------------------------------------------------------
SELECT is(outbox.inbox_claim('mail', :'e1'), true, 'the first claim');
SELECT is(outbox.inbox_claim('mail', :'e1'), false, 'the second');
SELECT is(outbox.inbox_claim('ledger', :'e1'), true, 'another consumer''s');
SELECT is(outbox.inbox_claim('mail', :'e2'), true, 'another event''s');
SAVEPOINT c;
SELECT is(outbox.inbox_claim('mail', :'e3'), true, 'a claim');
ROLLBACK TO c;
SELECT is(outbox.inbox_claim('mail', :'e3'), true, 'that was rolled back counts for nothing');
SELECT throws_ok($$SELECT outbox.inbox_claim(NULL, gen_random_uuid())$$, '23502', NULL, 'NULL is not quietly false');

-- ---- lane_of, takes -----------------------------------------------------------------------------------------------------------------
SELECT is_empty($$SELECT 1 FROM generate_series(1, 1000) i WHERE outbox.lane_of('key ' || i, i, 4) NOT BETWEEN 0 AND 3 OR outbox.lane_of('key ' || i, 1, 4) <> outbox.lane_of('key ' || i, 2, 4)$$, 'a key has one lane');
SELECT cmp_ok((SELECT min(n) FROM (SELECT count(*) AS n FROM generate_series(1, 4000) i GROUP BY outbox.lane_of('key ' || i, i, 4)) x), '>', 800::bigint, 'keys spread');
SELECT is((SELECT count(DISTINCT outbox.lane_of(NULL, i, 4)) FROM generate_series(1, 100) i), 4::bigint, 'events without a key spread by id');
SELECT is(outbox.takes(e, t, 'paid'), w, format('%s and %s/paid', e, coalesce(t, '(none)')))
FROM (VALUES ('*', 'order', true), ('*', NULL, true), ('order/*', 'order', true), ('order/*', 'payment', false), ('order/*,payment/pa*', 'payment', true), ('order/*', NULL, false)) x(e, t, w);

-- ---- health -------------------------------------------------------------------------------------------------------------------------
SELECT is((SELECT ok FROM outbox.health WHERE "check" = 'version'), true, 'library and SQL are of one version');
SELECT is((SELECT ok FROM outbox.health WHERE "check" = c), true, 'at first: ' || c) FROM unnest('{sinks,segments,id sequence,publications,encoding,event triggers,triggers}'::text[]) c;
SELECT is_empty('SELECT "check" FROM outbox.health GROUP BY 1 HAVING count(*) > 1', 'each check once');
SELECT is_empty('SELECT "check" FROM outbox.health WHERE ok IS NULL OR detail IS NULL OR NOT ok AND hint IS NULL', 'whatever is not ok has a hint');
SELECT is_empty('SELECT "check", hint FROM outbox.health WHERE ok AND hint IS NOT NULL', 'and nothing else');
ALTER SEQUENCE outbox.events_id_seq CACHE 10;
CREATE PUBLICATION tap_all FOR ALL TABLES;
ALTER EVENT TRIGGER outbox_sink_drop DISABLE;
CREATE FUNCTION pg_temp.t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER mine AFTER INSERT ON outbox.progress EXECUTE FUNCTION pg_temp.t();
SELECT is((SELECT ok FROM outbox.health WHERE "check" = c), false, 'noticed: ' || c) FROM unnest('{id sequence,publications,event triggers,triggers}'::text[]) c;
ALTER EVENT TRIGGER outbox_sink_drop ENABLE ALWAYS;
DROP SERVER one CASCADE; DROP SERVER four CASCADE; DROP SERVER orders CASCADE;
SELECT is((SELECT ok FROM outbox.health WHERE "check" = 'sinks'), false, 'noticed: no sink');
SELECT is_empty('SELECT 1 FROM outbox.lag', 'no sink, no row');
INSERT INTO outbox.segments (turn, segment) SELECT i, i % 16 FROM generate_series(1, 16) i;
SELECT is((SELECT ok FROM outbox.health WHERE "check" = 'segments'), false, 'noticed: a ring without a free segment');

SELECT * FROM finish();
ROLLBACK;
