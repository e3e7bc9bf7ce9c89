-- The DDL of sinks, with what it says. Two expected outputs: without the library preloaded CREATE SERVER warns.
\set SHOW_CONTEXT never
SET client_min_messages = error;
DROP EXTENSION IF EXISTS outbox CASCADE;
CREATE EXTENSION outbox;
RESET client_min_messages;
SELECT outbox.add_event('k', 'x', '{}', event_id => '11111111-1111-1111-1111-111111111111');

-- Paused at once: no relay of a server that has some touches what follows.
BEGIN;
CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', topic 'payments', lanes '2');
SELECT outbox.pause('kafka');
COMMIT;
CREATE USER MAPPING FOR CURRENT_USER SERVER kafka OPTIONS (sasl_username 'relay', sasl_password 'sesame');
SELECT sink, pending, parked, dead, oldest_parked_age FROM outbox.lag;
SELECT sink, lane, "position", published FROM outbox.relays ORDER BY lane;
SELECT sink, event_id, aggregate_id FROM outbox.pending;
SELECT sink, state, detail FROM outbox.status('11111111-1111-1111-1111-111111111111');

-- options
ALTER SERVER kafka OPTIONS (ADD format 'payload');
ALTER SERVER kafka OPTIONS (SET format 'debezium');
ALTER SERVER kafka OPTIONS (DROP format);
ALTER SERVER kafka OPTIONS (ADD acks '1');
ALTER SERVER kafka OPTIONS (ADD sasl_password 'sesame');
ALTER SERVER kafka OPTIONS (ADD plugin_library_paths 'x');
ALTER SERVER kafka OPTIONS (SET lanes 'many');
ALTER USER MAPPING FOR CURRENT_USER SERVER kafka OPTIONS (SET sasl_password 'open', ADD topic 't');
CREATE SERVER wrong FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_server '127.0.0.1:1');

-- drop, create again, rename, forget
DROP SERVER kafka;
DROP SERVER kafka CASCADE;
BEGIN;
CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', lanes '2');
SELECT outbox.pause('kafka');
COMMIT;
ALTER SERVER kafka RENAME TO bus;
SELECT sink, pending FROM outbox.lag;
SELECT outbox.pause('kafka');
SELECT outbox.forget('bus');
DROP SERVER bus CASCADE;
SELECT outbox.forget('bus');
SELECT outbox.forget('bus');

-- a copy of another installation's database
CREATE SERVER copy FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', home '1234567890/5/');
SELECT sink, state, pending, last_error FROM outbox.lag;
SELECT ok, detail, hint FROM outbox.health WHERE "check" = 'sink copy';
DROP SERVER copy;

-- by hand
SELECT outbox.redrive('no such sink');
SELECT outbox.discard('no such sink', '11111111-1111-1111-1111-111111111111', 'why');
SELECT sink, state FROM outbox.status('11111111-1111-1111-1111-111111111111');
TRUNCATE outbox.events;
DROP EXTENSION outbox;
