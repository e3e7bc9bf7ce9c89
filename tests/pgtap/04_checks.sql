-- What is refused when an event is written: the error names the argument, has a code and a hint, and can be caught. (B43; B94: header injection)
BEGIN;
SELECT * FROM no_plan();

CREATE FUNCTION pg_temp.error_of(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    message text;
    hint text;
BEGIN
    EXECUTE command;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    RETURN SQLSTATE || ' | ' || message || ' | ' || hint;
END $$;
-- The same check for a call and for an INSERT: the columns are named as the arguments are.
CREATE FUNCTION pg_temp.refused(arguments text, want text, what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    given jsonb := arguments::jsonb;
    named text;
    columns text;
    vals text;
BEGIN
    given := '{"aggregate_id": "k", "event_type": "x", "payload": "{}"}'::jsonb || given;
    SELECT string_agg(format('%I => %s', key, quote_nullable(value)), ', ' ORDER BY key),
           string_agg(format('%I', key), ', ' ORDER BY key), string_agg(quote_nullable(value), ', ' ORDER BY key)
    INTO named, columns, vals FROM jsonb_each_text(given);
    RETURN NEXT alike(pg_temp.error_of(format('SELECT outbox.add_event(%s)', named)), want, what);
    RETURN NEXT alike(pg_temp.error_of(format('INSERT INTO outbox.events (%s) VALUES (%s)', columns, vals)), want, what || ' (INSERT)');
    RETURN NEXT alike(pg_temp.error_of(format('INSERT INTO outbox.scheduled (%s, deliver_at) VALUES (%s, now())', columns, vals)), want, what || ' (scheduled)');
END $$;
CREATE FUNCTION pg_temp.taken(arguments text, what text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT pg_temp.refused(arguments, 'no error', what) $$;

-- ---- event_type -------------------------------------------------------------------------------------------------------------
SELECT alike(pg_temp.error_of($$SELECT outbox.add_event('k', NULL, '{}')$$), '22004 | argument "event_type" must not be NULL | %', 'event_type NULL');
SELECT alike(pg_temp.error_of($$INSERT INTO outbox.events (aggregate_id) VALUES ('k')$$), '23502 | event_type must not be NULL | %', 'event_type NULL (INSERT)');
SELECT pg_temp.refused('{"event_type": ""}', '22023 | event_type must not be empty | %', 'event_type empty');
SELECT pg_temp.refused(json_build_object('event_type', v)::text, '22023 | event_type % has a character that is not allowed in it | It may have printable%',
                       'event_type ' || to_json(v))
FROM unnest(ARRAY['a/b', 'a*', 'a,b', E'a\nb', E'a\tb', E'\u0001', E'a\u0085']) v;
SELECT pg_temp.refused(json_build_object('event_type', repeat('ж', 256))::text, '22023 | event_type has 256 characters, and at most 255 are allowed | %', 'event_type too long');
SELECT pg_temp.taken(json_build_object('event_type', v)::text, 'event_type taken: ' || left(v, 20))
FROM unnest(ARRAY[repeat('ж', 255), 'Order.Created', 'order created', 'v1:order-created_2', 'объект создан']) v;

-- ---- aggregate_type -----------------------------------------------------------------------------------------------------------
SELECT pg_temp.refused('{"aggregate_type": ""}', '22023 | aggregate_type must not be empty | For an event without one give NULL.', 'aggregate_type empty');
SELECT pg_temp.refused(json_build_object('aggregate_type', v)::text, '22023 | aggregate_type % has a character that is not allowed in it | It may have A-Z%',
                       'aggregate_type ' || to_json(v)) FROM unnest(ARRAY['a b', 'a/b', 'ж', E'a\n', 'a*']) v;
SELECT pg_temp.refused(json_build_object('aggregate_type', repeat('a', 201))::text, '22023 | aggregate_type has 201 characters, and at most 200 are allowed | %', 'aggregate_type too long');
SELECT pg_temp.taken(json_build_object('aggregate_type', v)::text, 'aggregate_type taken: ' || left(v, 20)) FROM unnest(ARRAY[repeat('a', 200), 'Order', 'a.b_c-D9']) v;

-- ---- topic --------------------------------------------------------------------------------------------------------------------
SELECT pg_temp.refused(json_build_object('topic', v)::text, '22023 | topic %', 'topic ' || to_json(left(v, 20)))
FROM unnest(ARRAY['', 'a b', 'x/y', '..', '.', repeat('t', 250), 'ж', 'a,b', E'a\nb']) v;
SELECT pg_temp.taken(json_build_object('topic', v)::text, 'topic taken: ' || left(v, 20)) FROM unnest(ARRAY['payments', repeat('t', 249), 'a.b_c-D9', '...']) v;

-- ---- headers ------------------------------------------------------------------------------------------------------------------
SELECT pg_temp.refused(json_build_object('headers', v)::text, w, 'headers ' || left(v, 40))
FROM (VALUES ('[]', '22023 | headers must be a JSON object | Give a flat object%'), ('"str"', '22023 | headers must be a JSON object | Give a flat object%'),
             ('1', '22023 | headers must be a JSON object | Give a flat object%'), ('null', '22023 | headers must be a JSON object | Give a flat object%'),
             ('{"a": 1}', '22023 | the value of header "a" is not a string | Give a flat object%'),
             ('{"a": true}', '22023 | the value of header "a" is not a string | %'),
             ('{"a": {"x": 1}}', '22023 | the value of header "a" is not a string | %'), ('{"a": ["x"]}', '22023 | the value of header "a" is not a string | %'),
             ('{"": "v"}', '22023 | headers has an empty name | %'),
             ('{"a": "x\r\nHost: evil"}', '22023 | the value of header "a" has a control character | %'),
             ('{"a\nb": "x"}', '22023 | header name % has a control character | %'),
             ('{"event_id": "x"}', '22023 | header name "event_id" is reserved | The relay sets event_id%'),
             ('{"Event_Type": "x"}', '22023 | header name "Event_Type" is reserved | %'), ('{"id": "x"}', '22023 | header name "id" is reserved | %'),
             ('{"aggregate_type": "x"}', '22023 | header name % is reserved | %'), ('{"content-type": "x"}', '22023 | header name % is reserved | %'),
             ('{"ce_time": "x"}', '22023 | header name % is reserved | %'), ('{"outbox-replay": "x"}', '22023 | header name % is reserved | %')) x(v, w);
SELECT pg_temp.taken(json_build_object('headers', v)::text, 'headers taken: ' || v)
FROM unnest(ARRAY['{}', '{"a": null}', '{"a": ""}', '{"trace": "ключ \" \\ / \u20ac"}', '{"ids": "x"}', '{"eventid": "x"}']) v;
SELECT lives_ok($$SELECT outbox.add_event('k', 'x', '{}', headers => (SELECT jsonb_object_agg('h' || i, 'v') FROM generate_series(1, 10000) i))$$, 'ten thousand headers');

-- ---- payload ------------------------------------------------------------------------------------------------------------------
SELECT is(pg_temp.error_of(format('SELECT outbox.add_event(%L, %L, %L)', 'k', 'x', v)),
          '22P02 | argument "payload" is not valid JSON | Text payloads must be JSON; pass anything else as bytea.', 'payload ' || quote_literal(v))
FROM unnest(ARRAY['', ' ', '{', 'hello', '{"a":}', '{}{}', '{''a'': 1}', 'NaN', '"\ud8"', '01']) v;
SELECT alike(pg_temp.error_of($$INSERT INTO outbox.events (event_type, payload, payload_bytes) VALUES ('x', '{}', '\x00')$$),
             '22023 | payload and payload_bytes are both set | An event has one payload%', 'two payloads');

-- ---- size ---------------------------------------------------------------------------------------------------------------------
SELECT pg_temp.refused(json_build_object('payload', '"' || repeat('x', 900000) || '"')::text,
    '54000 | the event has 900004 bytes (payload 900002, headers 0), and outbox.max_event_size allows 900000 | Put what is large elsewhere%', 'one byte too many counts');
SELECT lives_ok($$SELECT outbox.add_event('k', 'x', '"' || repeat('x', 899996) || '"')$$, 'outbox.max_event_size itself is taken');
SELECT alike(pg_temp.error_of($$SELECT outbox.add_event('k', 'x', decode(repeat('00', 900000), 'hex'))$$), '54000 | the event has 900002 bytes%', 'bytes too');
SELECT alike(pg_temp.error_of($$SELECT outbox.add_event('k', 'x', '{}', headers => jsonb_build_object('h', repeat('x', 1000000)))$$), '54000 | the event has % headers 1000009%', 'headers too');
SET LOCAL outbox.max_event_size = 1000;
SELECT alike(pg_temp.error_of($$SELECT outbox.add_event(repeat('k', 1000), 'x', '{}')$$), '54000 | the event has 1003 bytes%', 'the key too, and the setting counts at once');
RESET outbox.max_event_size;

-- ---- times --------------------------------------------------------------------------------------------------------------------
SELECT alike(pg_temp.error_of($$SELECT outbox.add_event('k', 'x', '{}', deliver_at => 'infinity')$$), '22023 | deliver_at must be %', 'deliver_at infinity');
SELECT alike(pg_temp.error_of($$INSERT INTO outbox.scheduled (event_type, deliver_at) VALUES ('x', '-infinity')$$), '22023 | deliver_at must be %', 'deliver_at -infinity (INSERT)');
SELECT alike(pg_temp.error_of($$INSERT INTO outbox.scheduled (event_type) VALUES ('x')$$), '23502 | %deliver_at%', 'deliver_at NULL (INSERT)');

-- ---- caught -------------------------------------------------------------------------------------------------------------------
TRUNCATE outbox.events, outbox.scheduled;
DO $$
BEGIN
    PERFORM outbox.add_event('before', 'x', '{}');
    BEGIN
        PERFORM outbox.add_event('inside', 'x', '{}');
        PERFORM outbox.add_event('k', 'x', '{');
    EXCEPTION WHEN invalid_text_representation THEN
        PERFORM outbox.add_event('handler', 'x', '{}');
    END;
    PERFORM outbox.add_event('after', 'x', '{}');
END $$;
SELECT results_eq('SELECT aggregate_id FROM outbox.events ORDER BY id', $$VALUES ('before'), ('handler'), ('after')$$,
                  'an error caught in plpgsql takes back its block and no more');
DO $$
BEGIN
    FOR i IN 1..1000 LOOP
        BEGIN
            PERFORM outbox.add_event('k', 'a/b', '{}');
        EXCEPTION WHEN invalid_parameter_value THEN NULL;
        END;
    END LOOP;
END $$;
SELECT pass('a thousand errors caught in a row');
SAVEPOINT a;
SELECT outbox.add_event('in a', 'x', '{}') \g /dev/null
SAVEPOINT b;
SELECT outbox.add_event('in b', 'x', '{}') \g /dev/null
ROLLBACK TO b;
SELECT outbox.add_event('after b', 'x', '{}') \g /dev/null
RELEASE a;
SAVEPOINT c;
INSERT INTO outbox.events (aggregate_id, event_type) VALUES ('in c', 'x');
ROLLBACK TO c;
SELECT results_eq('SELECT aggregate_id FROM outbox.events ORDER BY id', $$VALUES ('before'), ('handler'), ('after'), ('in a'), ('after b')$$, 'savepoints');
SELECT is_empty('SELECT 1 FROM outbox.events WHERE xid <> pg_current_xact_id()', 'events of a subtransaction have the transaction''s id');

SELECT throws_ok($$SET LOCAL transaction_read_only = on; SELECT outbox.add_event('k', 'x', '{}')$$, '25006',
                 'cannot execute outbox.add_event() in a read-only transaction', 'read-only transactions');

SELECT * FROM finish();
ROLLBACK;
