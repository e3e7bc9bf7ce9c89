-- Trace context: what a session has set goes into the headers of the events that it writes, whatever writes them.
BEGIN;
SELECT * FROM no_plan();
\set parent '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
\set other '00-11111111111111111111111111111111-2222222222222222-00'
-- The headers of the only event there is, or of the only one that is scheduled.
CREATE FUNCTION pg_temp.headers_of(command text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    found jsonb;
BEGIN
    EXECUTE command;
    SELECT x.headers INTO STRICT found FROM (SELECT headers FROM outbox.events UNION ALL SELECT headers FROM outbox.scheduled) x;
    TRUNCATE outbox.events, outbox.scheduled;
    RETURN found;
END $$;
CREATE TEMP TABLE ways (way text, own text, command text);
INSERT INTO ways SELECT way, own, format(command, quote_nullable(own)) FROM (VALUES
    ('add_event', $$SELECT outbox.add_event('k', 'x', '{}', headers => %s)$$),
    ('add_event, later', $$SELECT outbox.add_event('k', 'x', '{}', headers => %s, deliver_at => '2099-01-01')$$),
    ('INSERT', $$INSERT INTO outbox.events (aggregate_id, event_type, headers) VALUES ('k', 'x', %s)$$),
    ('INSERT, later', $$INSERT INTO outbox.scheduled (aggregate_id, event_type, headers, deliver_at) VALUES ('k', 'x', %s, '2099-01-01')$$)) w(way, command),
    (VALUES (NULL), ('{}'), ('{"a": "b"}'), ('{"traceparent": "mine"}'), ('{"tracestate": "mine", "baggage": null}'), ('{"Traceparent": "mine"}')) o(own);

SELECT is(pg_temp.headers_of(command), own::jsonb, format('nothing set, %s of %s', way, own)) FROM ways;

SELECT set_config('outbox.traceparent', :'parent', true), set_config('outbox.tracestate', 'rojo="1" \ x', true), set_config('outbox.baggage', 'user=alice', true) \g /dev/null
SELECT is(pg_temp.headers_of(command),
          jsonb_build_object('traceparent', :'parent', 'baggage', 'user=alice')
          || CASE WHEN own LIKE '%"traceparent"%' THEN '{}' ELSE jsonb_build_object('tracestate', 'rojo="1" \ x') END || coalesce(own::jsonb, '{}'),
          format('all three set, %s of %s: the caller''s own win, and a tracestate goes with its traceparent', way, own)) FROM ways;

SET LOCAL outbox.tracestate = '';
RESET outbox.baggage;
SELECT is(pg_temp.headers_of(command), jsonb_build_object('traceparent', :'parent'), way || ': what is empty is not set') FROM ways WHERE own IS NULL;

-- ---- the settings -----------------------------------------------------------------------------------------------------------
SELECT throws_ok(format('SET LOCAL outbox.traceparent = %L', v), '22023', 'invalid value for parameter "outbox.traceparent": "' || v || '"', 'traceparent ' || v)
FROM unnest(ARRAY['x', upper(:'parent'), :'parent' || '-1', 'ff' || substr(:'parent', 3), left(:'parent', -1),
                  '00-00000000000000000000000000000000-00f067aa0ba902b7-01', '00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01']) v;
SELECT throws_ok(format('SELECT set_config(%L, %L, true)', n, v), '22023', NULL, n || ' ' || to_json(left(v, 20)))
FROM unnest('{outbox.tracestate,outbox.baggage}'::text[]) n, unnest(ARRAY[E'a\nb', 'é', E'a\tb', repeat('x', 8193)]) v;
SELECT is(current_setting('outbox.traceparent'), :'parent', 'what was refused changed nothing');
SELECT lives_ok(format('SET LOCAL outbox.traceparent = %L', v), 'traceparent ' || v) FROM unnest(ARRAY[:'other', 'cc' || substr(:'other', 3) || '-later', '']) v;
SELECT is(pg_temp.headers_of($$SELECT outbox.add_event('k', 'x', '{}')$$), NULL, 'no headers at all once it is empty again');

-- ---- what else is asked of headers --------------------------------------------------------------------------------------------
SELECT set_config('outbox.traceparent', :'parent', true) \g /dev/null
SELECT throws_ok(format('SELECT outbox.add_event(%L, %L, %L, headers => %L)', 'k', 'x', '{}', h), '22023', m, 'still refused as before: ' || h)
FROM (VALUES ('[]', 'headers must be a JSON object'), ('1', 'headers must be a JSON object'), ('"x"', 'headers must be a JSON object'),
             ('{"id": "x"}', 'header name "id" is reserved'), ('{"a": 1}', 'the value of header "a" is not a string')) x(h, m);
SET LOCAL outbox.max_event_size = 1000;
SELECT set_config('outbox.baggage', repeat('x', 950), true) \g /dev/null
SELECT throws_ok($$SELECT outbox.add_event('k', 'x', '{}')$$, '54000', NULL, 'its size counts');
SELECT throws_ok($$INSERT INTO outbox.events (event_type) VALUES ('x')$$, '54000', NULL, 'its size counts (INSERT)');
RESET outbox.max_event_size;
SELECT lives_ok($$SELECT outbox.add_event('k', 'x', '{}')$$, 'and no more than that');

-- ---- who may set it, and where it ends ----------------------------------------------------------------------------------------
SAVEPOINT a;
SET LOCAL outbox.traceparent = :'other';
ROLLBACK TO a;
SELECT is(current_setting('outbox.traceparent'), :'parent', 'a savepoint takes it back');
CREATE ROLE tap_writer;
SELECT outbox.grant_writer('tap_writer') \g /dev/null
SET LOCAL ROLE tap_writer;
SET LOCAL outbox.traceparent = :'other';
SELECT outbox.add_event('as a writer', 'x', '{}') \g /dev/null
RESET ROLE;
SELECT is((SELECT headers->>'traceparent' FROM outbox.events WHERE aggregate_id = 'as a writer'), :'other', 'any role may set it');

SELECT * FROM finish();
ROLLBACK;
