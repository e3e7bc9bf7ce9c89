-- The options of a sink: which properties of librdkafka are free, which are refused, and for whom.
BEGIN;
SELECT * FROM no_plan();
SET client_min_messages = error;
CREATE ROLE tap_sinks;
CREATE ROLE tap_files IN ROLE tap_sinks, pg_read_server_files;
CREATE ROLE tap_programs IN ROLE tap_sinks, pg_execute_server_program;
GRANT USAGE ON FOREIGN DATA WRAPPER outbox_kafka TO tap_sinks;

-- What CREATE SERVER says to options as they stand in the statement, for a role; nothing is left of it.
CREATE FUNCTION pg_temp.server(role text, options text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    message text;
    hint text;
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role);
    EXECUTE format('CREATE SERVER s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers ''127.0.0.1:1'', %s)', options);
    RAISE EXCEPTION 'taken';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    RETURN CASE message WHEN 'taken' THEN message ELSE SQLSTATE || ' ' || message || coalesce(' | ' || nullif(hint, ''), '') END;
END $$;

-- ---- free -------------------------------------------------------------------------------------------------------------------
SELECT is(pg_temp.server('tap_sinks', o), 'taken', 'taken: ' || o)
FROM unnest(ARRAY[$$linger_ms '5'$$, $$"linger.ms" '5'$$, $$compression_type 'lz4'$$, $$"compression.type" 'zstd'$$, $$security_protocol 'SASL_SSL'$$,
                  $$sasl_mechanisms 'PLAIN'$$, $$"client.id" 'x'$$, $$batch_num_messages '500'$$, $$acks 'all'$$, $$acks '-1'$$, $$enable_idempotence 'true'$$,
                  $$max_in_flight '5'$$, $$allow_auto_create_topics 'true'$$]) o;

-- ---- what would void a guarantee --------------------------------------------------------------------------------------------
SELECT matches(pg_temp.server(r, o), '^HV00D option ".*" is set by outbox itself( \| .+)?$', format('refused, also for %s: %s', r, o))
FROM unnest('{tap_sinks,postgres}'::text[]) r,
     unnest(ARRAY[$$acks '1'$$, $$acks '0'$$, $$"request.required.acks" '1'$$, $$enable_idempotence 'false'$$, $$"enable.gapless.guarantee" 'false'$$,
                  $$max_in_flight '6'$$, $$"max.in.flight.requests.per.connection" '1000'$$, $$message_timeout_ms '1000'$$, $$"delivery.timeout.ms" '1000'$$,
                  $$retries '0'$$, $$"message.send.max.retries" '0'$$, $$delivery_report_only_error 'true'$$, $$queuing_strategy 'lifo'$$,
                  $$transactional_id 'x'$$, $$log_queue 'false'$$, $$enabled_events '0'$$, $$"test.mock.num.brokers" '3'$$, $$"group.id" 'g'$$,
                  $$"auto.offset.reset" 'earliest'$$, $$"enable.auto.commit" 'true'$$]) o;

-- ---- what reaches the server's files and programs ------------------------------------------------------------------------------
SELECT matches(pg_temp.server(r, o), '^42501 option ".*" cannot be set', format('refused for %s: %s', r, o))
FROM unnest('{tap_sinks,tap_files,tap_programs,postgres}'::text[]) r,
     unnest(ARRAY[$$plugin_library_paths '/tmp/outbox-no-such-library'$$, $$"plugin.library.paths" 'x'$$, $$"ssl.engine.location" '/tmp/x.so'$$,
                  $$ssl_engine_id 'x'$$, $$"ssl.providers" 'legacy'$$]) o;
SELECT matches(pg_temp.server(r, o), '^42501 option ".*" runs a program on the server', format('refused for %s: %s', r, o))
FROM unnest('{tap_sinks,tap_files}'::text[]) r, unnest(ARRAY[$$sasl_kerberos_kinit_cmd 'touch /tmp/outbox-tap-was-here'$$, $$"sasl.kerberos.kinit.cmd" 'true'$$,
    -- they become part of that command
    $$sasl_kerberos_keytab '; true'$$, $$"sasl.kerberos.principal" '; true'$$]) o;
SELECT is(pg_temp.server(r, $$sasl_kerberos_kinit_cmd 'true'$$), 'taken', 'taken for ' || r || ': sasl.kerberos.kinit.cmd') FROM unnest('{tap_programs,postgres}'::text[]) r;
SELECT matches(pg_temp.server(r, o), '^42501 option ".*" names a file or an address that the server would read', format('refused for %s: %s', r, o))
FROM unnest('{tap_sinks,tap_programs}'::text[]) r,
     unnest(ARRAY[$$ssl_ca_location '/etc/passwd'$$, $$"ssl.certificate.location" '/etc/passwd'$$, $$ssl_key_location '/etc/passwd'$$,
                  $$ssl_keystore_location '/etc/passwd'$$, $$ssl_crl_location '/etc/passwd'$$,
                  $$sasl_password_file '/etc/passwd'$$, $$"sasl.oauthbearer.token.endpoint.url" 'http://127.0.0.1/'$$]) o;
SELECT is(pg_temp.server(r, $$ssl_ca_location '/etc/ssl/certs'$$), 'taken', 'taken for ' || r || ': ssl.ca.location') FROM unnest('{tap_files,postgres}'::text[]) r;

-- ---- secrets ----------------------------------------------------------------------------------------------------------------
SELECT matches(pg_temp.server('postgres', o), '^HV00D option ".*" is a secret and belongs in the user mapping', 'a secret has no place in a server: ' || o)
FROM unnest(ARRAY[$$sasl_password 'sesame'$$, $$"sasl.password" 'sesame'$$, $$ssl_key_password 'sesame'$$, $$ssl_keystore_password 'sesame'$$,
                  $$ssl_key_pem 'sesame'$$, $$"sasl.oauthbearer.client.secret" 'sesame'$$, $$"sasl.oauthbearer.config" 'sesame'$$]) o;
SELECT unalike(pg_temp.server('postgres', o), '%sesame%', 'and is in no message: ' || o)
FROM unnest(ARRAY[$$sasl_password 'sesame'$$, $$sasl_passwrd 'sesame'$$, $$ssl_key_pem 'sesame'$$, $$sasl_password 'sesame', "sasl.password" 'sesame'$$]) o;
CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
SELECT lives_ok($$CREATE USER MAPPING FOR CURRENT_USER SERVER kafka OPTIONS (sasl_username 'u', sasl_password 'sesame')$$, 'secrets belong in the user mapping');
SELECT throws_ok($$ALTER USER MAPPING FOR CURRENT_USER SERVER kafka OPTIONS (ADD topic 't')$$, 'HV00D', 'option "topic" belongs to the server, not to a user mapping', 'what is the server''s does not');
SELECT throws_ok($$ALTER USER MAPPING FOR CURRENT_USER SERVER kafka OPTIONS (ADD acks '1')$$, 'HV00D', 'option "acks" is set by outbox itself', 'the classes hold there too');
SELECT throws_ok($$ALTER USER MAPPING FOR CURRENT_USER SERVER kafka OPTIONS (ADD "plugin.library.paths" 'x')$$, '42501', NULL, 'all of them');
SELECT throws_ok($$ALTER USER MAPPING FOR CURRENT_USER SERVER kafka OPTIONS (ADD "sasl.password" 'b')$$, 'HV00D', NULL, 'and both spellings of one property are an error');

-- ---- names and values ---------------------------------------------------------------------------------------------------------
SELECT matches(pg_temp.server('postgres', o), '^HV00D option "nonsense.*" is neither an option of outbox nor a producer property of librdkafka', 'unknown: ' || o)
FROM unnest(ARRAY[$$nonsense 'x'$$, $$"nonsense.ms" '1'$$]) o;
SELECT is(pg_temp.server('postgres', $$linger_ms '5', "linger.ms" '6'$$), 'HV00D options "linger_ms" and "linger.ms" are the same property', 'two spellings of one property');
SELECT matches(pg_temp.server('postgres', o), '^HV[0-9A-Z]{3} .*' || n, 'bad value: ' || o)
FROM (VALUES ($$compression_type 'bogus'$$, 'compression_type'), ($$linger_ms 'soon'$$, 'linger_ms'), ($$security_protocol 'tls'$$, 'security_protocol'),
             ($$topic 'a b'$$, 'topic'), ($$topic '{nope}'$$, 'topic'), ($$topic ''$$, 'topic'), ($$format 'xml'$$, 'format'), ($$events '/'$$, 'events'), ($$lanes '0'$$, 'lanes'),
             ($$lanes '65'$$, 'lanes'), ($$lanes 'two'$$, 'lanes'), ($$start 'middle'$$, 'start'), ($$batch_size '0'$$, 'batch_size'), ($$batch_size '10001'$$, 'batch_size'),
             ($$delivery_timeout '30'$$, 'delivery_timeout'), ($$stall_timeout '-2s'$$, 'stall_timeout'), ($$on_poison 'drop'$$, 'on_poison'), ($$timestamp 'now'$$, 'timestamp')) x(o, n);
SELECT is(pg_temp.server('tap_sinks', o), 'taken', 'taken: ' || o)
FROM unnest(ARRAY[$$topic 'payments'$$, $$topic 'outbox.{aggregate_type}.{event_type}'$$, $$format 'cloudevents_structured'$$, $$events 'order/*,payment/*.done'$$,
                  $$lanes '64'$$, $$start 'latest'$$, $$batch_size '10000'$$, $$delivery_timeout '500ms'$$, $$stall_timeout '5s'$$, $$on_poison 'skip'$$, $$timestamp 'sent'$$, $$source '/x'$$]) o;
SELECT throws_ok($$ALTER SERVER kafka OPTIONS (ADD acks '1')$$, 'HV00D', NULL, 'ALTER SERVER is checked as well');
SELECT lives_ok($$ALTER SERVER kafka OPTIONS (ADD topic 'a', SET bootstrap_servers '127.0.0.1:2')$$, 'ADD and SET');
SELECT lives_ok($$ALTER SERVER kafka OPTIONS (SET topic 'b', DROP bootstrap_servers)$$, 'SET and DROP');
SELECT throws_ok($$CREATE FOREIGN TABLE t (x int) SERVER kafka OPTIONS (topic 't')$$, 'HV00D', NULL, 'a foreign table has no options');

SELECT * FROM finish();
ROLLBACK;
