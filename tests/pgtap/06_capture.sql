-- Nothing that a caller puts in front of our objects is ever used: temporary tables, types and functions of the same names,
-- a search_path of the caller's with operators and functions in it. (B78)
BEGIN;
SELECT * FROM no_plan();
SET client_min_messages = error;
CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
SELECT outbox.pause('kafka');
RESET client_min_messages;
CREATE ROLE tap_evil;
SELECT outbox.grant_writer('tap_evil'), outbox.grant_monitor('tap_evil') \g /dev/null
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA outbox TO tap_evil;
GRANT USAGE ON FOREIGN DATA WRAPPER outbox_kafka TO tap_evil;
SELECT format('GRANT CREATE, TEMP ON DATABASE %I TO tap_evil', current_database()) \gexec

CREATE SCHEMA evil AUTHORIZATION tap_evil;
CREATE SCHEMA tap_here;
SET ROLE tap_evil;
-- Whatever runs one of these with more rights than tap_evil's is caught: it says so by the error.
CREATE FUNCTION evil.trap() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_user <> 'tap_evil' THEN
        RAISE EXCEPTION 'trapped as %', current_user USING ERRCODE = 'ZZ999';
    END IF;
END $$;
CREATE FUNCTION evil.count(anyelement) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.trap(); RETURN 0; END $$;
CREATE FUNCTION evil.format(text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.trap(); RETURN 'SELECT 1'; END $$;
CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.trap(); RETURN '2000-01-01'; END $$;
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.trap(); RETURN '2000-01-01'; END $$;
CREATE FUNCTION evil.btrim(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.trap(); RETURN ''; END $$;
CREATE FUNCTION evil.text_eq(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.trap(); RETURN true; END $$;
CREATE FUNCTION evil.uuid_eq(uuid, uuid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.trap(); RETURN true; END $$;
CREATE FUNCTION evil.int_eq(integer, integer) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.trap(); RETURN true; END $$;
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.text_eq);
CREATE OPERATOR evil.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = evil.uuid_eq);
CREATE OPERATOR evil.= (LEFTARG = integer, RIGHTARG = integer, FUNCTION = evil.int_eq);
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['events', 'events_0', 'scheduled', 'segments', 'sinks', 'lanes', 'progress', 'lane_changes', 'parked_events', 'parked',
                             'discarded', 'inbox', 'servers', 'lane_progress', 'pending', 'relays', 'lag', 'health', 'pg_roles', 'pg_proc',
                             'pg_foreign_server', 'pg_namespace', 'pg_sequence', 'events_id_seq', 'turn'] LOOP
        EXECUTE format('CREATE TEMP TABLE %I (name text, sink text, sink_id int, event_id uuid, consumer text, last_value bigint)', t);
    END LOOP;
END $$;
CREATE TYPE pg_temp.text AS (x int);
CREATE TYPE pg_temp.uuid AS (x int);
CREATE TYPE pg_temp.pg_snapshot AS (x int);
RESET ROLE;
-- For this script itself and for pgTAP.
SET search_path = pg_catalog, public, pg_temp;

CREATE FUNCTION tap_here.run(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    SET LOCAL search_path = pg_temp, evil, pg_catalog;
    SET LOCAL ROLE tap_evil;
    BEGIN
        EXECUTE command INTO result;
    EXCEPTION WHEN OTHERS THEN
        result := SQLSTATE || ' ' || SQLERRM;
    END;
    RESET ROLE;
    SET LOCAL search_path = pg_catalog, public, pg_temp;
    RETURN result;
END $$;

SELECT outbox.add_event('k', 'x', '{}', event_id => '33333333-3333-3333-3333-333333333333') \g /dev/null
SELECT outbox.add_event('k', 'x', '{}', deliver_at => '2099-01-01', event_id => '55555555-5555-5555-5555-555555555555') \g /dev/null
INSERT INTO outbox.parked_events (sink_id, id, event_id, event_type, created_at, destination, reason)
    SELECT sink_id, i, ('44444444-4444-4444-4444-44444444444' || i)::uuid, 'x', now(), 't', 'dead' FROM outbox.sinks, generate_series(1, 2) i;

SELECT matches(tap_here.run($$SELECT outbox.add_event('trap'::pg_catalog.text, 'x'::pg_catalog.text, '{}'::pg_catalog.text)$$), '^[0-9a-f-]{36}$', 'add_event');
SELECT is((SELECT pg_catalog.count(*) FROM outbox.events WHERE aggregate_id = 'trap'), 1::bigint, 'wrote to the real table');
SELECT matches(tap_here.run($$INSERT INTO outbox.events (aggregate_id, event_type) VALUES ('trap', 'x') RETURNING event_id$$), '^[0-9a-f-]{36}$', 'INSERT');
SELECT is(tap_here.run($$SELECT outbox.inbox_claim('c', '33333333-3333-3333-3333-333333333333')$$), 'true', 'inbox_claim');
SELECT is((SELECT pg_catalog.count(*) FROM outbox.inbox), 1::bigint, 'wrote to the real table');
SELECT is(tap_here.run($$SELECT pending FROM outbox.lag$$), '3', 'outbox.lag counts the real events');
SELECT is(tap_here.run($$SELECT outbox.pause('kafka')$$), '', 'pause');
SELECT is(tap_here.run($$SELECT outbox.resume('kafka')$$), '', 'resume');
SELECT is(tap_here.run($$SELECT outbox.pause('kafka')$$), '', 'pause again');
SELECT ok((SELECT paused FROM outbox.sinks), 'and it was the real sink');
SELECT is(tap_here.run($$SELECT outbox.redrive('kafka')$$), '2', 'redrive');
SELECT is(tap_here.run($$SELECT outbox.discard('kafka', '44444444-4444-4444-4444-444444444441', 'on purpose')$$), '1', 'discard');
SELECT is(tap_here.run($$SELECT outbox.cancel('55555555-5555-5555-5555-555555555555')$$), 'true', 'cancel');
SELECT is(tap_here.run($$SELECT state FROM outbox.status('33333333-3333-3333-3333-333333333333')$$), 'pending', 'status');
SELECT matches(tap_here.run($$SELECT state FROM outbox.relays$$), '^(paused|no_worker)$', 'outbox.relays');
SELECT is(tap_here.run($$SELECT ok FROM outbox.health WHERE pg_catalog.texteq("check", 'sinks')$$), 'true', 'outbox.health');
SELECT is(tap_here.run($$SELECT sink FROM outbox.parked$$), 'kafka', 'outbox.parked');
SELECT alike(tap_here.run($$SELECT outbox.grant_writer('tap_evil'::pg_catalog.text)$$), '42501 %', 'grant_writer gives nobody what they may not give themselves');
SELECT alike(tap_here.run($$SELECT outbox.forget('nothing')$$), '42704 nothing is remembered of a sink "nothing"', 'forget');

-- A sink made with all of that in the way, by somebody who is not a superuser.
CREATE FUNCTION tap_here.do(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text := 'done';
BEGIN
    SET LOCAL search_path = pg_temp, evil, pg_catalog;
    SET LOCAL client_min_messages = error;
    SET LOCAL ROLE tap_evil;
    BEGIN
        EXECUTE command;
    EXCEPTION WHEN OTHERS THEN
        result := SQLSTATE || ' ' || SQLERRM;
    END;
    RESET ROLE;
    RESET client_min_messages;
    SET LOCAL search_path = pg_catalog, public, pg_temp;
    RETURN result;
END $$;
SELECT is(tap_here.do($$CREATE SERVER evil_sink FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', lanes '2')$$), 'done', 'CREATE SERVER');
SELECT is((SELECT pg_catalog.count(*) FROM outbox.lanes l JOIN outbox.sinks s USING (sink_id) WHERE s.name = 'evil_sink'), 2::bigint, 'makes the real lanes');
SELECT is(tap_here.do($$ALTER SERVER evil_sink RENAME TO evil_sink_2$$), 'done', 'ALTER SERVER RENAME');
SELECT alike(tap_here.do($$DROP SERVER evil_sink_2$$), '55006 %', 'DROP SERVER sees the real events');
SELECT is(tap_here.do($$DROP SERVER evil_sink_2 CASCADE$$), 'done', 'DROP SERVER CASCADE');
SELECT isnt((SELECT dropped_at FROM outbox.sinks WHERE name = 'evil_sink_2'), NULL, 'and notes it');

SELECT * FROM finish();
ROLLBACK;
