-- The processes, on a server that has the library preloaded; elsewhere nothing but what outbox.health says to that.
\set SHOW_CONTEXT never
SET client_min_messages = error;
DROP EXTENSION IF EXISTS outbox CASCADE;
CREATE EXTENSION outbox;
SELECT ok, detail, hint FROM outbox.health WHERE "check" = 'preload';
SELECT NOT preloaded AS without FROM outbox.worker_state() \gset
\if :without
DROP EXTENSION outbox;
\quit
\endif

CREATE PROCEDURE wait_until(condition text) LANGUAGE plpgsql AS $$
DECLARE
    deadline timestamptz := clock_timestamp() + interval '60 seconds';
    holds boolean;
BEGIN
    LOOP
        EXECUTE 'SELECT ' || condition INTO holds;
        EXIT WHEN holds;
        IF clock_timestamp() > deadline THEN
            RAISE EXCEPTION 'not within 60 s: %', condition;
        END IF;
        PERFORM pg_sleep(0.02);
        COMMIT;
    END LOOP;
END $$;

-- a sink gets its relays
CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', topic 't', lanes '2', delivery_timeout '1s');
CALL wait_until('(SELECT count(*) = 2 AND bool_and(pid IS NOT NULL AND state = ''idle'') FROM outbox.relays)');
SELECT a.backend_type, a.datname = current_database() AS here, a.state, count(*)
FROM outbox.relays r JOIN pg_stat_activity a USING (pid) GROUP BY 1, 2, 3;
SELECT sink, state, pending, last_error FROM outbox.lag;
SELECT "check", ok FROM outbox.health ORDER BY 1;

-- pause and resume
SELECT outbox.pause('kafka');
SELECT outbox.add_event('k', 'x', '{}') IS NOT NULL AS added;
CALL wait_until('(SELECT state = ''paused'' FROM outbox.lag)');
SELECT sink, state, pending FROM outbox.lag;
SELECT outbox.resume('kafka');
CALL wait_until('(SELECT state IN (''running'', ''backing_off'') FROM outbox.lag)');
SELECT sink, pending FROM outbox.lag;

-- one that was told to end comes back
SELECT outbox.pause('kafka');
CALL wait_until('(SELECT bool_and(pid IS NOT NULL AND state = ''paused'') FROM outbox.relays)');
CREATE TEMP TABLE before AS SELECT lane, pid FROM outbox.relays;
SELECT lane, pg_terminate_backend(pid) FROM before ORDER BY lane;
CALL wait_until('(SELECT bool_and(r.pid <> b.pid) FROM outbox.relays r JOIN before b USING (lane))');

-- a second sink, and none
CREATE SERVER other FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', topic 't', start 'latest');
CALL wait_until('(SELECT count(*) = 3 AND bool_and(pid IS NOT NULL) FROM outbox.relays)');
ALTER SERVER other RENAME TO another;
SELECT sink, lane FROM outbox.relays ORDER BY 1, 2;
DROP SERVER another;
DROP SERVER kafka CASCADE;
CALL wait_until('NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = ''outbox relay'' AND datname = current_database())');
SELECT count(*) FROM outbox.relays;

-- with the extension it all goes, and comes again
CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', topic 't', delivery_timeout '1s');
CALL wait_until('(SELECT bool_and(pid IS NOT NULL) FROM outbox.relays)');
DROP EXTENSION outbox CASCADE;
CALL wait_until('NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = ''outbox relay'' AND datname = current_database())');
CREATE EXTENSION outbox;
CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', topic 't');
CALL wait_until('(SELECT bool_and(pid IS NOT NULL) FROM outbox.relays)');
DROP EXTENSION outbox CASCADE;
DROP PROCEDURE wait_until(text);
