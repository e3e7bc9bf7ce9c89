-- The options of an HTTP sink: what a server and a user mapping take, and what no message shows.
BEGIN;
SELECT * FROM no_plan();
SET client_min_messages = error;
CREATE ROLE tap_sinks;
GRANT USAGE ON FOREIGN DATA WRAPPER outbox_http TO tap_sinks;

-- What a statement says to options as they stand in it; nothing is left of it.
CREATE FUNCTION pg_temp.said(command text, options text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    message text;
    hint text;
BEGIN
    SET LOCAL ROLE tap_sinks;
    EXECUTE format(command, options);
    RAISE EXCEPTION 'taken';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    RETURN CASE message WHEN 'taken' THEN message ELSE SQLSTATE || ' ' || message || coalesce(' | ' || nullif(hint, ''), '') END;
END $$;
CREATE FUNCTION pg_temp.server(options text) RETURNS text LANGUAGE sql
    AS $$ SELECT pg_temp.said('CREATE SERVER s FOREIGN DATA WRAPPER outbox_http OPTIONS (%s)', options) $$;
SET ROLE tap_sinks;
CREATE SERVER hook FOREIGN DATA WRAPPER outbox_http OPTIONS (url 'https://example.com/hooks');
RESET ROLE;
CREATE FUNCTION pg_temp.mapping(options text) RETURNS text LANGUAGE sql
    AS $$ SELECT pg_temp.said('CREATE USER MAPPING FOR CURRENT_USER SERVER hook OPTIONS (%s)', options) $$;

SELECT is(pg_temp.server($$url 'https://example.com/hooks', $$ || o), 'taken', 'taken: ' || o)
FROM unnest(ARRAY[$$events 'payment/*'$$, $$lanes '4'$$, $$start 'latest'$$, $$batch_size '10'$$, $$stall_timeout '1s'$$, $$delivery_timeout '1min'$$,
                  $$on_poison 'skip'$$, $$source '/x'$$, $$format 'cloudevents'$$, $$concurrency '256'$$, $$connect_timeout '1s'$$, $$request_timeout '30s'$$,
                  $$attempts '3'$$, $$rate_limit '100'$$, $$retry_after_limit '1min'$$, $$allow_http 'true'$$, $$allow_private 'true'$$,
                  $$batch '1000'$$, $$idempotency_key 'true'$$, $$headers '{"X-Source": "payments"}'$$]) o;
SELECT matches(pg_temp.server(o), '^HV024 .*"url"', 'the url must be there and good: ' || o)
FROM unnest(ARRAY[$$concurrency '1'$$, $$url 'example.com'$$, $$url 'http://example.com'$$, $$url 'https://user:x@example.com/'$$, $$url 'ftp://example.com/'$$]) o;
SELECT matches(pg_temp.server($$url 'https://example.com/', $$ || o), '^HV024 .*' || n, 'a bad value is refused: ' || o)
FROM (VALUES ($$concurrency '0'$$, 'concurrency'), ($$batch '1001'$$, 'batch'), ($$batch '2', format 'cloudevents'$$, 'batch.*needs the format webhook'), ($$attempts '0'$$, 'attempts'), ($$format 'envelope'$$, 'format'), ($$request_timeout '15'$$, 'request_timeout'),
             ($$headers '{"Authorization": "x"}'$$, 'headers'), ($$headers '[]'$$, 'headers'), ($$ca_certificate '/etc/passwd'$$, 'ca_certificate')) v(o, n);
SELECT matches(pg_temp.server($$url 'https://example.com/', $$ || o), '^HV00D .* \| Options of a server are format, .*url', 'an unknown option is refused: ' || o)
FROM unnest(ARRAY[$$topic 't'$$, $$timestamp 'sent'$$, $$bootstrap_servers 'x'$$, $$urls 'x'$$, $$proxy 'http://example.com'$$]) o;

SELECT matches(pg_temp.server($$url 'https://example.com/', $$ || o), '^HV00D option ".*" is a secret and belongs in the user mapping', 'a secret has no place in a server: ' || o)
FROM unnest(ARRAY[$$secret 'sesame'$$, $$bearer_token 'sesame'$$, $$username 'sesame'$$, $$password 'sesame'$$, $$client_key 'sesame'$$, $$client_certificate 'sesame'$$]) o;
SELECT is(pg_temp.mapping(o), 'taken', 'a user mapping takes it')
FROM unnest(ARRAY['secret ''whsec_' || repeat('A', 32) || '''', 'secret ''whsec_' || repeat('A', 32) || ' whsec_' || repeat('B', 32) || '''',
                  $$bearer_token 'x'$$, $$username 'u', password 'p'$$]) o;
SELECT matches(pg_temp.mapping(o), '^HV0', 'a user mapping refuses it')
FROM unnest(ARRAY[$$url 'https://example.com/'$$, $$secret 'sesame'$$, 'secret ''whsec_' || repeat('A', 28) || '''', $$username 'sesame'$$, $$password 'sesame'$$,
                  $$bearer_token 'sesame', username 'u', password 'sesame'$$, $$client_key '/etc/sesame'$$, $$sasl_password 'sesame'$$]) o;
SELECT unalike(said, '%sesame%', 'and no message shows a secret')
FROM unnest(ARRAY[pg_temp.server($$url 'https://example.com/', secret 'sesame'$$), pg_temp.mapping($$secret 'sesame'$$), pg_temp.mapping($$secret 'whsec_sesame'$$),
                  pg_temp.mapping($$client_key '/etc/sesame'$$), pg_temp.mapping($$bearer_token E'sesame\n'$$), pg_temp.mapping($$password 'sesame'$$)]) said;

-- ALTER is judged by what the server has after it.
SELECT throws_ok($$ALTER SERVER hook OPTIONS (DROP url)$$, 'HV024', NULL, 'the url cannot be dropped');
SELECT throws_ok($$ALTER SERVER hook OPTIONS (SET url 'http://example.com/')$$, 'HV024', NULL, 'nor become http:// without leave');
SELECT lives_ok($$ALTER SERVER hook OPTIONS (SET url 'http://example.com/', ADD allow_http 'true')$$, 'with leave it can');
SELECT results_eq($$SELECT sink, state FROM outbox.lag$$, $$VALUES ('hook', 'starting')$$, 'and it is a sink as the others are');

SELECT * FROM finish();
ROLLBACK;
