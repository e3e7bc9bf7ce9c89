-- What the DDL of a sink does in its own transaction: lanes and progress are made, follow RENAME, stay after DROP, come back.
SELECT outbox.add_event('k', 'x', '{}') FROM generate_series(1, 5) \g /dev/null
BEGIN;
SELECT * FROM no_plan();
SET client_min_messages = error;
CREATE FUNCTION pg_temp.hint_of(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    EXECUTE command;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RETURN hint;
END $$;
-- As if everything were published, also what this transaction has written.
CREATE FUNCTION pg_temp.publish_all(sink text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO outbox.progress (sink_id, epoch, lane, batch, "position", seen, next_xid, events, published)
    SELECT p.sink_id, p.epoch, p.lane, p.batch + 1, (SELECT last_value FROM outbox.events_id_seq),
           format('%1$s:%1$s:', x.next_xid)::pg_snapshot, x.next_xid::text::xid8, 0, 0
    FROM (SELECT pg_current_xact_id()::text::bigint + 1 AS next_xid) x, outbox.lane_progress p WHERE p.sink = publish_all.sink $$;
CREATE VIEW pg_temp.sinks AS SELECT s.name, s.lanes, (SELECT count(*) FROM outbox.lanes l WHERE l.sink_id = s.sink_id) AS made, s.dropped_at IS NOT NULL AS dropped FROM outbox.sinks s;

-- ---- CREATE -----------------------------------------------------------------------------------------------------------------
CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', lanes '3');
SELECT results_eq('SELECT * FROM pg_temp.sinks', $$VALUES ('kafka', 3, 3::bigint, false)$$, 'CREATE SERVER makes the sink and its lanes');
SELECT results_eq($$SELECT lane, batch, "position", epoch FROM outbox.lane_progress WHERE sink = 'kafka' ORDER BY 1$$,
                  $$SELECT i, 0::bigint, 0::bigint, 1 FROM generate_series(0, 2) i$$, 'which begin at the first event');
SELECT is((SELECT max(seen::text) FROM outbox.lane_progress), pg_current_snapshot()::text, 'at this snapshot');
SELECT is((SELECT home FROM outbox.servers WHERE name = 'kafka'), (SELECT home FROM outbox.worker_state()), 'the server carries this installation''s identity');
SELECT is((SELECT count(*) FROM outbox.pending WHERE sink = 'kafka'), 5::bigint, 'what is in the log is pending for it');
CREATE SERVER late FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', start 'latest');
SELECT is_empty($$SELECT 1 FROM outbox.pending WHERE sink = 'late'$$, 'start latest: what is in the log is not pending');
SELECT outbox.add_event('k', 'x', '{}') AS event \gset
SELECT results_eq($$SELECT event_id FROM outbox.pending WHERE sink = 'late'$$, format('VALUES (%L::uuid)', :'event'), 'but what comes after');
SELECT is((SELECT state FROM outbox.status((SELECT event_id FROM outbox.events ORDER BY id LIMIT 1)) WHERE sink = 'late'), 'not for this sink', 'outbox.status knows');
CREATE FOREIGN DATA WRAPPER other;
CREATE SERVER other FOREIGN DATA WRAPPER other OPTIONS (lanes '3');
SELECT is_empty($$SELECT 1 FROM outbox.sinks WHERE name = 'other' UNION ALL SELECT 1 FROM outbox.servers WHERE name = 'other'$$, 'a server of another wrapper is no sink');
SELECT lives_ok('ALTER SERVER other RENAME TO other2', 'it is renamed'); SELECT lives_ok('DROP SERVER other2', 'and dropped as ever');
CREATE SERVER "Odd 'name\" FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
SELECT is((SELECT made FROM pg_temp.sinks WHERE name = $$Odd 'name\$$), 1::bigint, 'an odd name');
SELECT lives_ok($$SELECT outbox.pause($x$Odd 'name\$x$)$$, 'can be paused'); SELECT lives_ok($$SELECT outbox.resume($x$Odd 'name\$x$)$$, 'and resumed');
SELECT lives_ok($$DROP SERVER "Odd 'name\" CASCADE; SELECT outbox.forget($x$Odd 'name\$x$)$$, 'and dropped and forgotten');
CREATE SERVER IF NOT EXISTS kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (lanes '9');
SELECT is((SELECT lanes FROM outbox.servers WHERE name = 'kafka'), 3, 'CREATE SERVER IF NOT EXISTS changes nothing');
SET LOCAL session_replication_role = replica;
CREATE SERVER replica FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
SELECT is((SELECT made FROM pg_temp.sinks WHERE name = 'replica'), 1::bigint, 'also where session_replication_role is replica');
DROP SERVER replica CASCADE;
SET LOCAL session_replication_role = origin;

-- ---- ALTER ------------------------------------------------------------------------------------------------------------------
SELECT sink_id AS kafka_id FROM outbox.sinks WHERE name = 'kafka' \gset
SELECT pg_temp.publish_all('kafka') \g /dev/null
ALTER SERVER kafka RENAME TO kafka2;
SELECT is((SELECT name FROM outbox.sinks WHERE sink_id = :kafka_id), 'kafka2', 'RENAME takes the sink along');
SELECT is_empty($$SELECT 1 FROM outbox.pending WHERE sink IN ('kafka', 'kafka2')$$, 'with its position');
SELECT is((SELECT count(*) FROM outbox.sinks WHERE name = 'kafka'), 0::bigint, 'and leaves nothing under the old name');
ALTER SERVER kafka2 OPTIONS (SET lanes '2', ADD topic 'payments');
SELECT results_eq($$SELECT v.lanes, s.lanes FROM outbox.servers v JOIN outbox.sinks s USING (name) WHERE name = 'kafka2'$$, 'VALUES (2, 3)',
                  'ALTER of lanes: the old number stays in force until the relays have come to one point');
SELECT is((SELECT ok FROM outbox.health WHERE "check" = 'sink kafka2: lanes'), false, 'and outbox.health says so');
ALTER SERVER kafka2 OPTIONS (DROP lanes, DROP topic);
CREATE ROLE tap_owner;
GRANT USAGE ON FOREIGN DATA WRAPPER outbox_kafka TO tap_owner;
ALTER SERVER kafka2 OWNER TO tap_owner;
SELECT is((SELECT owner FROM outbox.servers WHERE name = 'kafka2'), 'tap_owner'::regrole::oid, 'OWNER TO');
SET ROLE tap_owner;
SELECT lives_ok($$CREATE USER MAPPING FOR CURRENT_USER SERVER kafka2 OPTIONS (sasl_username 'u', sasl_password 'p')$$, 'CREATE USER MAPPING by the owner');
SELECT lives_ok($$ALTER USER MAPPING FOR CURRENT_USER SERVER kafka2 OPTIONS (SET sasl_password 'q')$$, 'ALTER');
SELECT lives_ok($$DROP USER MAPPING FOR CURRENT_USER SERVER kafka2$$, 'DROP');
SELECT lives_ok($$CREATE SERVER mine FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', lanes '2')$$, 'a sink of somebody who is not a superuser');
RESET ROLE;
SELECT is((SELECT made FROM pg_temp.sinks WHERE name = 'mine'), 2::bigint, 'has its lanes');

-- ---- DROP -------------------------------------------------------------------------------------------------------------------
SELECT throws_ok('DROP SERVER late', '55006', 'sink "late" has pending events', 'DROP SERVER with pending events is refused');
SELECT alike(pg_temp.hint_of('DROP SERVER late'), 'Wait until outbox.lag shows none, or DROP SERVER ... CASCADE%', 'with a hint');
SELECT throws_ok('DROP SERVER kafka2, late', '55006', 'sink "late" has pending events', 'also among several');
SELECT throws_ok('DROP SERVER IF EXISTS late', '55006', NULL, 'also with IF EXISTS');
SET ROLE tap_owner;
SELECT throws_ok('DROP SERVER mine', '55006', 'sink "mine" has pending events', 'also for its owner');
RESET ROLE;
INSERT INTO outbox.parked_events (sink_id, id, event_id, event_type, created_at, destination, reason) VALUES (:kafka_id, 1, gen_random_uuid(), 'x', now(), 't', 'dead');
SELECT throws_ok('DROP SERVER kafka2', '55006', 'sink "kafka2" has parked events', 'with parked events too');
DELETE FROM outbox.parked_events;
SELECT lives_ok('DROP SERVER kafka2', 'DROP SERVER with nothing pending');
SELECT results_eq($$SELECT made, dropped FROM pg_temp.sinks WHERE name = 'kafka2'$$, 'VALUES (3::bigint, true)', 'its position is remembered');
SELECT is_empty($$SELECT 1 FROM outbox.lag WHERE sink = 'kafka2'$$, 'but it is no sink any more');
SELECT lives_ok('DROP SERVER late CASCADE', 'DROP SERVER … CASCADE with pending events');
SELECT ok((SELECT dropped FROM pg_temp.sinks WHERE name = 'late'), 'is remembered too');
SELECT lives_ok('DROP OWNED BY tap_owner', 'DROP OWNED');
SELECT ok((SELECT dropped FROM pg_temp.sinks WHERE name = 'mine'), 'is seen');
SELECT throws_ok('DROP FOREIGN DATA WRAPPER outbox_kafka CASCADE', '2BP01', NULL, 'the wrapper belongs to the extension');

-- ---- CREATE again, RENAME over what was dropped, forget ------------------------------------------------------------------------
CREATE SERVER kafka2 FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', start 'earliest', lanes '1');
SELECT results_eq($$SELECT name, dropped, made FROM pg_temp.sinks s WHERE name = 'kafka2'$$, $$VALUES ('kafka2', false, 3::bigint)$$, 'CREATE again: the lanes that were there');
SELECT is((SELECT sink_id FROM outbox.sinks WHERE name = 'kafka2'), :kafka_id, 'the same sink');
SELECT is_empty($$SELECT 1 FROM outbox.pending WHERE sink = 'kafka2'$$, 'goes on where it was');
SELECT throws_ok($$SELECT outbox.forget('kafka2')$$, '55006', 'sink "kafka2" is in use', 'a sink that is there cannot be forgotten');
SELECT throws_ok($$SELECT outbox.forget('never seen')$$, '42704', NULL, 'nor one that never was');
DROP SERVER kafka2;
SELECT lives_ok($$SELECT outbox.forget('kafka2')$$, 'forget');
SELECT is_empty(format('SELECT 1 FROM outbox.sinks WHERE sink_id = %1$s UNION ALL SELECT 1 FROM outbox.lanes WHERE sink_id = %1$s UNION ALL SELECT 1 FROM outbox.progress WHERE sink_id = %1$s', :kafka_id),
                'leaves nothing');
CREATE SERVER kafka2 FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
SELECT is((SELECT count(*) FROM outbox.pending WHERE sink = 'kafka2'), 6::bigint, 'CREATE after forget starts afresh');
ALTER SERVER kafka2 RENAME TO late;
SELECT is((SELECT count(*) FROM outbox.pending WHERE sink = 'late'), 6::bigint, 'RENAME to a name that was dropped: the renamed one''s position counts');
SELECT is((SELECT count(*) FROM outbox.sinks WHERE name = 'late'), 1::bigint, 'and the other is forgotten');

-- ---- pause, resume, halted copies -----------------------------------------------------------------------------------------------
SELECT outbox.pause('late') \g /dev/null
SELECT ok((SELECT paused FROM outbox.sinks WHERE name = 'late'), 'pause');
SELECT outbox.resume('late') \g /dev/null
SELECT ok((SELECT NOT paused FROM outbox.sinks WHERE name = 'late'), 'resume');
SELECT throws_ok(format('SELECT outbox.%s(''no such'')', f), '42704', 'there is no sink "no such"', f || ' of a sink that is not there') FROM unnest('{pause,resume}'::text[]) f;
SELECT throws_ok(format('SELECT * FROM outbox.%s(NULL)', f), '22004', 'argument "sink" must not be NULL', f || ' of nothing') FROM unnest('{pause,resume,forget,test_sink}'::text[]) f;
CREATE SERVER copy FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', home '1234567890/5/', lanes '2');
SELECT is_empty($$SELECT 1 FROM outbox.sinks WHERE name = 'copy'$$, 'a server with another installation''s identity gets no lanes');
SELECT results_eq($$SELECT state, pending, oldest_pending_age, last_error FROM outbox.lag WHERE sink = 'copy'$$,
                  $$VALUES ('halted', 0::bigint, '0'::interval, 'published by another cluster: this one is a restored copy')$$, 'and is halted in outbox.lag');
SELECT alike((SELECT hint FROM outbox.health WHERE "check" = 'sink copy'), '%SELECT outbox.resume(''copy'')%', 'outbox.health says what to do');
SELECT throws_ok(format('ALTER SERVER copy OPTIONS (%s)', c), 'HV00D', 'option "home" is set by outbox itself', c || ' is no way home')
FROM unnest(ARRAY['DROP home', format('SET home %L', (SELECT home FROM outbox.worker_state()))]) c;
SELECT outbox.resume('copy') \g /dev/null
SELECT results_eq($$SELECT lanes, made FROM pg_temp.sinks WHERE name = 'copy'$$, 'VALUES (2, 2::bigint)', 'resume makes its lanes');
SELECT is((SELECT home FROM outbox.servers WHERE name = 'copy'), (SELECT home FROM outbox.worker_state()), 'and gives it this installation''s identity');
SELECT isnt((SELECT state FROM outbox.lag WHERE sink = 'copy'), 'halted', 'so it is halted no more');

-- ---- rollback -------------------------------------------------------------------------------------------------------------------
SELECT array_agg(x ORDER BY x)::text AS before FROM (SELECT name || sink_id || coalesce(dropped_at::text, '') AS x FROM outbox.sinks) s \gset
SAVEPOINT s;
CREATE SERVER rolled FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', lanes '5');
ALTER SERVER late RENAME TO later;
DROP SERVER copy CASCADE;
SELECT outbox.pause('later') \g /dev/null
ROLLBACK TO s;
SELECT is((SELECT array_agg(x ORDER BY x)::text FROM (SELECT name || sink_id || coalesce(dropped_at::text, '') AS x FROM outbox.sinks) s), :'before',
          'CREATE, RENAME, DROP and pause are taken back');
SELECT is((SELECT count(*) FROM outbox.lanes WHERE sink_id NOT IN (SELECT sink_id FROM outbox.sinks)), 0::bigint, 'no lane is left over');

SELECT throws_ok('DROP EXTENSION outbox', '2BP01', NULL, 'DROP EXTENSION is refused while there are sinks');
SELECT lives_ok('DROP EXTENSION outbox CASCADE', 'DROP EXTENSION … CASCADE');
SELECT lives_ok('CREATE EXTENSION outbox', 'CREATE EXTENSION again, in the same transaction');

SELECT * FROM finish();
ROLLBACK;
