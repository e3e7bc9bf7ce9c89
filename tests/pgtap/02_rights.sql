-- Who may do what: PUBLIC nothing, a writer write, a monitor look. (B80)
BEGIN;
SELECT * FROM no_plan();
SET client_min_messages = warning;
CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
SELECT outbox.pause('kafka');
RESET client_min_messages;

CREATE FUNCTION pg_temp.as_role(role text, command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role);
    BEGIN
        EXECUTE command INTO result;
        result := coalesce(result, 'ok');
    EXCEPTION WHEN OTHERS THEN
        result := SQLSTATE;
    END;
    RESET ROLE;
    RETURN result;
END $$;

CREATE ROLE tap_nobody;
CREATE ROLE "tap Writer";
CREATE ROLE "tap""; DROP TABLE x; --";
CREATE ROLE tap_monitor;

-- ---- PUBLIC ---------------------------------------------------------------------------------------------------------------
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                  WHERE p.pronamespace = 'outbox'::regnamespace AND a.grantee <> p.proowner$$, 'no function is anybody''s but the owner''s');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c, aclexplode(c.relacl) a
                  WHERE c.relnamespace = 'outbox'::regnamespace AND a.grantee <> c.relowner$$, 'no table, view or sequence either');
SELECT is_empty($$SELECT 1 FROM pg_attribute a WHERE a.attacl IS NOT NULL
                  AND a.attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'outbox'::regnamespace)$$, 'no column either');
SELECT is_empty($$SELECT 1 FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = 'outbox' AND a.grantee <> n.nspowner$$, 'nor the schema');
SELECT is_empty($$SELECT 1 FROM pg_foreign_data_wrapper w, aclexplode(w.fdwacl) a WHERE w.fdwname IN ('outbox_kafka', 'outbox_http') AND a.grantee <> w.fdwowner$$,
                'nor the wrappers: whoever may create a sink may send every event anywhere');
SELECT is(pg_temp.as_role('tap_nobody', $$SELECT outbox.add_event('k', 'x', '{}')$$), '42501', 'a role without anything cannot add an event');
SELECT is(pg_temp.as_role('tap_nobody', $$INSERT INTO outbox.events (event_type) VALUES ('x')$$), '42501', 'nor insert one');
SELECT is(pg_temp.as_role('tap_nobody', $$SELECT count(*) FROM outbox.lag$$), '42501', 'nor see the lag');

GRANT USAGE ON SCHEMA outbox TO tap_nobody;
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = 'outbox'::regnamespace
                  AND has_function_privilege('tap_nobody', p.oid, 'EXECUTE')$$, 'with the schema alone: no function');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p', 'v')
                  AND (has_table_privilege('tap_nobody', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
                       OR has_any_column_privilege('tap_nobody', c.oid, 'SELECT, INSERT, UPDATE, REFERENCES'))$$, 'and no table');

-- ---- writers --------------------------------------------------------------------------------------------------------------
SELECT lives_ok($$SELECT outbox.grant_writer('tap Writer')$$, 'grant_writer takes a name as it is, whatever characters it has');
SELECT lives_ok($$SELECT outbox.grant_writer('tap"; DROP TABLE x; --')$$, 'also the unlikely ones');
SELECT lives_ok($$SELECT outbox.grant_writer('"tap Writer"'::regrole)$$, 'grant_writer takes a regrole');
SELECT throws_ok($$SELECT outbox.grant_writer('public')$$, '42704', 'role "public" does not exist', 'PUBLIC is not a role');
SELECT throws_ok($$SELECT outbox.grant_writer('nobody at all')$$, '42704', 'role "nobody at all" does not exist', 'a role that is not there');
SELECT throws_ok($$SELECT outbox.grant_monitor('public')$$, '42704', 'role "public" does not exist', 'PUBLIC is not a monitor');

SELECT matches(pg_temp.as_role('tap Writer', $$SELECT outbox.add_event('k', 'x', '{}')$$), '^[0-9a-f-]{36}$', 'a writer can add an event');
SELECT matches(pg_temp.as_role('tap Writer', $$SELECT outbox.add_event(1, 'x', '{}'::jsonb, deliver_at => '2099-01-01')$$), '^[0-9a-f-]{36}$',
               'and schedule one');
SELECT matches(pg_temp.as_role('tap Writer', $$INSERT INTO outbox.events (event_id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, headers, topic)
    VALUES (NULL, 't', 'k', 'x', '{}', NULL, '{"h": "v"}', 't') RETURNING id || ' ' || event_id$$), '^\d+ [0-9a-f-]{36}$',
    'and INSERT … RETURNING id, event_id');
SELECT matches(pg_temp.as_role('tap Writer', $$INSERT INTO outbox.scheduled (event_type, deliver_at) VALUES ('x', '2099-01-01') RETURNING event_id$$),
               '^[0-9a-f-]{36}$', 'into outbox.scheduled too');
SELECT is(pg_temp.as_role('tap Writer', $$SELECT set_config('outbox.lock_keys', 'on', true)$$), 'on', 'and set outbox.lock_keys');
SET LOCAL outbox.lock_keys = off;
SELECT set_eq($$SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'outbox'::regnamespace
                AND has_function_privilege('tap Writer', p.oid, 'EXECUTE')$$,
              ARRAY['add_event', 'next_id', 'current_segment', 'new_event_id', 'capture', 'uncapture', 'capture_row', 'check_types'], 'it may call these functions and no other');
SELECT is(count(*), 12::bigint, 'add_event in all signatures') FROM pg_proc p
WHERE p.pronamespace = 'outbox'::regnamespace AND p.proname = 'add_event' AND has_function_privilege('tap Writer', p.oid, 'EXECUTE');
SELECT set_eq(
    $$SELECT a.attrelid::regclass::text, a.attname::text, x.privilege_type FROM pg_attribute a, aclexplode(a.attacl) x
      WHERE x.grantee = '"tap Writer"'::regrole$$,
    $$SELECT t, c, 'INSERT' AS p FROM unnest('{outbox.events,outbox.scheduled}'::text[]) t,
             unnest('{event_id,aggregate_type,aggregate_id,event_type,payload,payload_bytes,headers,topic}'::text[]) c
      UNION ALL SELECT t, c, 'SELECT' FROM unnest('{outbox.events,outbox.scheduled}'::text[]) t, unnest('{id,event_id}'::text[]) c
      UNION ALL VALUES ('outbox.scheduled', 'deliver_at', 'INSERT')$$, 'and has rights on these columns and no other');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
                  AND CASE c.relkind WHEN 'S' THEN has_sequence_privilege('tap Writer', c.oid, 'USAGE, SELECT, UPDATE')
                      ELSE has_table_privilege('tap Writer', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') END$$,
                'and on no whole table, and on no sequence');
SELECT is(pg_temp.as_role('tap Writer', x.command), '42501', 'a writer cannot: ' || x.command)
FROM (VALUES ('INSERT INTO outbox.events (id, event_type) VALUES (1, ''x'')'), ('INSERT INTO outbox.events (xid, event_type) VALUES (''1'', ''x'')'),
             ('INSERT INTO outbox.events (segment, event_type) VALUES (1, ''x'')'), ('INSERT INTO outbox.events (created_at, event_type) VALUES (now(), ''x'')'),
             ('SELECT payload FROM outbox.events'), ('UPDATE outbox.events SET topic = ''t'''), ('DELETE FROM outbox.events'), ('TRUNCATE outbox.events'),
             ('INSERT INTO outbox.events_0 (event_type) VALUES (''x'')'), ('DELETE FROM outbox.scheduled'), ('SELECT outbox.cancel(gen_random_uuid())'),
             ('SELECT count(*) FROM outbox.pending'), ('SELECT count(*) FROM outbox.lag'), ('SELECT outbox.pause(''kafka'')'),
             ('SELECT outbox.redrive(''kafka'')'), ('SELECT outbox.replay(''kafka'', now() - interval ''1 day'')'), ('SELECT * FROM outbox.retention_run()'), ('SELECT * FROM outbox.test_sink(''kafka'')'), ('SELECT outbox.grant_writer(''tap_nobody'')'),
             ('SELECT outbox.inbox_claim(''c'', gen_random_uuid())'), ('SELECT setval(''outbox.turn'', 1)'),
             ('CREATE TRIGGER t BEFORE INSERT ON outbox.events FOR EACH ROW EXECUTE FUNCTION outbox.check_event()'),
             ('CREATE TABLE outbox.x ()'), ('CREATE SERVER x FOREIGN DATA WRAPPER outbox_kafka')) x(command);

-- ---- monitors -------------------------------------------------------------------------------------------------------------
SELECT lives_ok($$SELECT outbox.grant_monitor('tap_monitor')$$, 'grant_monitor');
SELECT lives_ok($$SELECT outbox.grant_monitor('tap_monitor'::regrole)$$, 'grant_monitor takes a regrole');
SELECT isnt(pg_temp.as_role('tap_monitor', format('SELECT count(*) FROM outbox.%I', x.v)), '42501', 'a monitor can read outbox.' || x.v)
FROM unnest('{lag,pending,relays,parked,discarded,replays,health,captures,metrics,metrics_log}'::text[]) x(v);
SELECT is(pg_temp.as_role('tap_monitor', 'SELECT count(*) FROM outbox.lag'), '1', 'and sees the sinks there');
SELECT is(pg_temp.as_role('tap_monitor', 'SELECT pending FROM outbox.lag'), '2', 'with what waits');
SELECT is(pg_temp.as_role('tap_monitor', 'SELECT count(*) FROM outbox.pending'), '2', 'which it sees too');
SELECT cmp_ok(pg_temp.as_role('tap_monitor', 'SELECT count(*) FROM outbox.health')::int, '>', 5, 'and all checks of outbox.health');
SELECT is(pg_temp.as_role('tap_monitor', 'SELECT state FROM outbox.status(gen_random_uuid())'), 'gone', 'and ask for an event');
SELECT set_eq($$SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p', 'v')
                AND has_any_column_privilege('tap_monitor', c.oid, 'SELECT')$$, ARRAY['lag', 'pending', 'relays', 'parked', 'discarded', 'replays', 'health', 'captures', 'metrics', 'metrics_log'],
              'it reads nothing else');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p', 'v')
                  AND (has_table_privilege('tap_monitor', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
                       OR has_any_column_privilege('tap_monitor', c.oid, 'INSERT, UPDATE, REFERENCES'))$$, 'and writes nothing');
SELECT is(pg_temp.as_role('tap_monitor', x.command), '42501', 'a monitor cannot: ' || x.command)
FROM (VALUES ('SELECT outbox.add_event(''k'', ''x'', ''{}'')'), ('SELECT outbox.pause(''kafka'')'), ('SELECT outbox.redrive(''kafka'')'),
             ('SELECT outbox.discard(''kafka'', gen_random_uuid(), ''x'')'), ('SELECT outbox.stop_replay(1)'), ('SELECT payload FROM outbox.events'), ('SELECT * FROM outbox.servers')) x(command);

-- ---- what default privileges would have given -------------------------------------------------------------------------------
SET client_min_messages = error;
DROP EXTENSION outbox CASCADE;
DROP SCHEMA outbox;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO tap_nobody;
ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO tap_nobody;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO tap_nobody;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO tap_nobody;
CREATE EXTENSION outbox;
SELECT is_empty($$SELECT c.oid::regclass::text FROM pg_class c, aclexplode(c.relacl) a WHERE c.relnamespace = 'outbox'::regnamespace AND a.grantee <> c.relowner
                  UNION ALL SELECT p.oid::regprocedure::text FROM pg_proc p, aclexplode(p.proacl) a WHERE p.pronamespace = 'outbox'::regnamespace AND a.grantee <> p.proowner
                  UNION ALL SELECT nspname FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = 'outbox' AND a.grantee <> n.nspowner$$,
                'default privileges give nobody anything here: a trigger would run with the relay''s rights');

DROP EXTENSION outbox CASCADE;
DROP SCHEMA outbox;
CREATE SCHEMA outbox AUTHORIZATION tap_nobody;
SELECT throws_ok('CREATE EXTENSION outbox', '42P06', 'there is a schema "outbox" that does not belong to a superuser', 'a schema of somebody else''s is refused');

SELECT * FROM finish();
ROLLBACK;
