-- Of a long backlog outbox.lag counts the first two million ids and says that the rest is an estimate. Ids that nobody used make it long.
BEGIN;
SELECT * FROM no_plan();
SET client_min_messages = error;
CREATE SERVER one FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
CREATE SERVER four FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', lanes '4');
CREATE SERVER orders FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'order/*');
SELECT count(outbox.add_event('k' || i, 'x', '{}', 'payment')) FROM generate_series(1, 1000) i \g /dev/null
SELECT results_eq('SELECT sink, pending, pending_estimated FROM outbox.lag ORDER BY sink', $$VALUES ('four', 1000::bigint, false), ('one', 1000, false), ('orders', 0, false)$$,
                  'a short backlog is counted');
SELECT max(id) - min(id) + 1 AS span, min(id) AS first FROM outbox.events \gset
SELECT setval('outbox.events_id_seq', :first + 3999990) \g /dev/null
SELECT count(outbox.add_event('k' || i, 'x', '{}', 'order')) FROM generate_series(1, 9) i \g /dev/null
SELECT is((SELECT max(id) - min(id) + 1 FROM outbox.events), 4000000::bigint, 'four million ids in all');
SELECT is((SELECT max("position") FROM outbox.lane_progress), :first - 1::bigint, 'all of them above the positions');
SELECT results_eq($$SELECT sink, pending, pending_estimated FROM outbox.lag WHERE sink IN ('one', 'four') ORDER BY sink$$,
                  $$VALUES ('four', 2000::bigint, true), ('one', 2000, true)$$, 'a long one is estimated: a thousand in the first half of it');
SELECT results_eq($$SELECT pending, pending_estimated FROM outbox.lag WHERE sink = 'orders'$$, 'VALUES (9::bigint, false)',
                  'a sink that takes none of the first two million is counted to the end');
SELECT ok((SELECT bool_and(oldest_pending_age > interval '0') FROM outbox.lag), 'and each has the age of its oldest');
SELECT * FROM finish();
ROLLBACK;
