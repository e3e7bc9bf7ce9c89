-- Somebody who may create sinks and is no superuser tries each option that would run code, read a file or reach memory, on each
-- way that an option can come in: CREATE SERVER, ALTER SERVER ADD and SET, user mappings of theirs and for PUBLIC.
BEGIN;
SELECT * FROM no_plan();
SET client_min_messages = error;
CREATE ROLE tap_sinks;
GRANT USAGE ON FOREIGN DATA WRAPPER outbox_kafka TO tap_sinks;
SELECT format('GRANT CREATE ON DATABASE %I TO tap_sinks', current_database()) \gexec

CREATE TEMP TABLE dangerous (option text, of_superusers boolean);
INSERT INTO dangerous SELECT unnest(ARRAY['plugin.library.paths', 'ssl.engine.location', 'ssl.engine.id', 'ssl.providers',
    'opaque', 'background_event_cb', 'dr_cb', 'dr_msg_cb', 'error_cb', 'throttle_cb', 'stats_cb', 'log_cb', 'socket_cb', 'connect_cb',
    'closesocket_cb', 'open_cb', 'resolve_cb', 'rebalance_cb', 'consume_cb', 'offset_commit_cb', 'oauthbearer_token_refresh_cb',
    'ssl.certificate.verify_cb', 'ssl_engine_callback_data', 'partitioner_cb', 'msg_order_cmp', 'default_topic_conf', 'interceptors',
    'ssl_ca', 'ssl_key', 'ssl_certificate', 'internal.termination.signal', 'log_level', 'debug', 'enabled_events', 'log.queue',
    'test.mock.num.brokers', 'no.such.option', 'offset.store.path', 'Plugin.Library.Paths', ' plugin.library.paths', 'plugin.library_paths']), false;
INSERT INTO dangerous SELECT unnest(ARRAY['ssl.ca.location', 'ssl.certificate.location', 'ssl.key.location', 'ssl.keystore.location', 'ssl.crl.location',
    'sasl.password.file', 'sasl.kerberos.kinit.cmd', 'sasl.kerberos.principal', 'sasl.kerberos.keytab', 'sasl.oauthbearer.token.endpoint.url']), true;
INSERT INTO dangerous SELECT unnest(ARRAY['https.ca.location', 'sasl.oauthbearer.assertion.file', 'sasl.oauthbearer.assertion.private.key.file',
    'sasl.oauthbearer.assertion.jwt.template.file', 'sasl.oauthbearer.metadata.authentication.type']), false;  -- from 2.11 on; before, nobody knows them
INSERT INTO dangerous SELECT replace(option, '.', '_'), of_superusers FROM dangerous WHERE option ~ '\.' AND option !~ '^ |P|no\.such|library_';

CREATE FUNCTION pg_temp.try(role text, command text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role);
    EXECUTE command;
    RAISE EXCEPTION 'taken';
EXCEPTION WHEN OTHERS THEN
    RETURN CASE SQLERRM WHEN 'taken' THEN SQLERRM ELSE SQLSTATE END;
END $$;

SET LOCAL ROLE tap_sinks;
CREATE SERVER mine FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
CREATE USER MAPPING FOR tap_sinks SERVER mine OPTIONS (sasl_username 'u');
CREATE USER MAPPING FOR PUBLIC SERVER mine;
RESET ROLE;
SELECT is(pg_temp.try('tap_sinks', $$ALTER SERVER mine OPTIONS (ADD "linger.ms" '7')$$), 'taken', 'the role may set what is free');

CREATE TEMP TABLE tried AS
SELECT d.option, w.way, pg_temp.try('tap_sinks', format(w.way, d.option)) AS answer
FROM dangerous d, unnest(ARRAY[
    'CREATE SERVER s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers ''127.0.0.1:1'', %I ''/etc/passwd'')',
    'ALTER SERVER mine OPTIONS (ADD %I ''/etc/passwd'')',
    'ALTER SERVER mine OPTIONS (%I ''/etc/passwd'')',
    'ALTER USER MAPPING FOR tap_sinks SERVER mine OPTIONS (ADD %I ''/etc/passwd'')',
    'ALTER USER MAPPING FOR PUBLIC SERVER mine OPTIONS (ADD %I ''/etc/passwd'')',
    'DROP USER MAPPING FOR PUBLIC SERVER mine; CREATE USER MAPPING FOR PUBLIC SERVER mine OPTIONS (%I ''/etc/passwd'')']) w(way);
SELECT is_empty('SELECT * FROM tried WHERE answer NOT IN (''42501'', ''HV00D'', ''HV00C'')', 'each dangerous option is refused, on each way');
SELECT cmp_ok(count(*), '>', 400::bigint, 'so many were tried') FROM tried;
SELECT is_empty('SELECT * FROM tried WHERE answer <> ''42501'' AND option IN (SELECT option FROM dangerous WHERE of_superusers)',
                'and for want of a right where somebody else may set it');

-- What a superuser has set on their server they cannot point elsewhere.
SELECT is_empty($$SELECT * FROM (
    SELECT d.option, pg_temp.try('postgres', format('ALTER SERVER mine OPTIONS (ADD %I ''%s'')', d.option,
        CASE WHEN d.option LIKE '%url' THEN 'http://127.0.0.1/' ELSE '/x' END)) AS superuser FROM dangerous d WHERE of_superusers) x
    WHERE superuser NOT IN ('taken', 'HV024')$$, 'a superuser may set these, as far as librdkafka was built with them');
ALTER SERVER mine OPTIONS (ADD ssl_ca_location '/etc/ssl/certs', ADD sasl_kerberos_kinit_cmd 'true');
SELECT is(pg_temp.try('tap_sinks', $$ALTER SERVER mine OPTIONS (SET ssl_ca_location '/etc/passwd')$$), '42501', 'SET of a file');
SELECT is(pg_temp.try('tap_sinks', $$ALTER SERVER mine OPTIONS (SET sasl_kerberos_kinit_cmd 'touch /tmp/x')$$), '42501', 'SET of a command');
SELECT is(pg_temp.try('tap_sinks', $$ALTER SERVER mine OPTIONS (DROP ssl_ca_location, ADD "ssl.ca.location" '/etc/passwd')$$), '42501', 'the other spelling');

-- The wrapper itself is nobody's to change.
SELECT is(pg_temp.try('tap_sinks', c), '42501', c) FROM unnest(ARRAY[
    'ALTER FOREIGN DATA WRAPPER outbox_kafka NO VALIDATOR', 'CREATE FOREIGN DATA WRAPPER w VALIDATOR outbox.kafka_validator',
    'ALTER EVENT TRIGGER outbox_sink_ddl DISABLE', 'SELECT outbox.resume(''mine'')', 'SELECT outbox.test_sink(''mine'')',
    'CREATE SERVER s FOREIGN DATA WRAPPER outbox_kafka; GRANT USAGE ON FOREIGN DATA WRAPPER outbox_kafka TO tap_sinks; ALTER EXTENSION outbox DROP FOREIGN DATA WRAPPER outbox_kafka']) c;

SELECT * FROM finish();
ROLLBACK;
