-- outbox.homes: which `home` the sinks of this database have had. Only the database's files take it along, so it tells pg_upgrade from
-- a restore.
BEGIN;
SELECT * FROM no_plan();
SET client_min_messages = error;
CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
SELECT results_eq('SELECT home FROM outbox.homes', 'SELECT home FROM outbox.servers', 'a new sink''s home is remembered');
SELECT results_eq('SELECT home FROM outbox.homes', 'SELECT home FROM outbox.worker_state()', 'and is ours');
CREATE SERVER other FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', home '1/2/x');
SELECT is(count(*), 1::bigint, 'one that a server brought from elsewhere is not') FROM outbox.homes;
SELECT is(state, 'halted', 'that sink is halted') FROM outbox.lag WHERE sink = 'other';
DROP SERVER kafka;
SELECT is(count(*), 1::bigint, 'it outlives the sink') FROM outbox.homes;

-- What a subscription to another database's tables would bring.
SET LOCAL session_replication_role = replica;
INSERT INTO outbox.homes VALUES ('1/2/x');
DELETE FROM outbox.homes;
RESET session_replication_role;
SELECT results_eq('SELECT home FROM outbox.homes', 'SELECT home FROM outbox.worker_state()', 'logical replication neither brings homes nor takes them');

SELECT outbox.resume('other');
SELECT results_eq('SELECT DISTINCT home FROM outbox.servers', 'SELECT home FROM outbox.worker_state()', 'resume gives a sink our home');
SELECT is(count(*), 1::bigint, 'which is remembered already') FROM outbox.homes;

SELECT * FROM finish();
ROLLBACK;
