-- outbox.capture: an event for each row changed, whatever the table and whatever changes it.
BEGIN;
SELECT * FROM no_plan();
SET client_min_messages = warning;
CREATE FUNCTION pg_temp.told() RETURNS TABLE (key text, type text, payload text) LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT e.aggregate_id, e.event_type, e.payload::text FROM outbox.events e ORDER BY e.id;
    DELETE FROM outbox.events;
END $$;
CREATE FUNCTION pg_temp.tells(command text, want text, what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE command;
    RETURN is((SELECT string_agg(concat_ws(' ', coalesce(t.key, 'NULL'), t.type, t.payload), '; ') FROM pg_temp.told() t), want, what);
END $$;

-- ---- what is told ---------------------------------------------------------------------------------------------------------------
CREATE TABLE payments (id int PRIMARY KEY, status text, amount numeric, note text);
SELECT outbox.capture('payments', 'payment', 'id') \g /dev/null
SELECT pg_temp.tells($$INSERT INTO payments VALUES (1, 'new', 1.0)$$, '1 inserted {"id":1,"status":"new","amount":1.0,"note":null}', 'INSERT');
SELECT is((SELECT count(*) FROM outbox.events), 0::bigint, 'the tests take away what they have looked at');
SELECT pg_temp.tells($$UPDATE payments SET status = 'paid'$$, '1 updated {"id":1,"status":"paid","amount":1.0,"note":null}', 'UPDATE: the new row');
SELECT pg_temp.tells($$UPDATE payments SET status = 'paid', id = id$$, NULL, 'an UPDATE that changes nothing: nothing');
SELECT pg_temp.tells($$UPDATE payments SET amount = 1.00$$, '1 updated {"id":1,"status":"paid","amount":1.00,"note":null}', 'what would be other JSON is a change');
SELECT pg_temp.tells($$UPDATE payments SET note = ''$$, '1 updated {"id":1,"status":"paid","amount":1.00,"note":""}', 'NULL and an empty string are two things');
SELECT pg_temp.tells($$UPDATE payments SET id = 2, status = 'x'$$,
    '1 deleted {"id":1,"status":"paid","amount":1.00,"note":""}; 2 inserted {"id":2,"status":"x","amount":1.00,"note":""}',
    'an UPDATE of the key: the old key''s history ends, the new one''s begins');
SELECT pg_temp.tells($$DELETE FROM payments$$, '2 deleted {"id":2,"status":"x","amount":1.00,"note":""}', 'DELETE: the old row');
SELECT is((SELECT count(*) FROM payments), 0::bigint, 'and the table is as it would be without');
SELECT outbox.capture('payments', 'payment', 'id') \g /dev/null
INSERT INTO payments VALUES (1, 'new', 1);
SELECT results_eq($$SELECT aggregate_type, topic, headers, payload_bytes FROM outbox.events$$, $$VALUES ('payment', NULL::text, NULL::jsonb, NULL::bytea)$$, 'an ordinary event');
SELECT is((SELECT count(*) FROM outbox.events WHERE xid = pg_current_xact_id()), 1::bigint, 'in the transaction of the change');
DELETE FROM outbox.events;
SELECT pg_temp.tells($$INSERT INTO payments VALUES (1, 'again', 2), (2, 'new', 2) ON CONFLICT (id) DO UPDATE SET status = excluded.status$$,
    '1 updated {"id":1,"status":"again","amount":1,"note":null}; 2 inserted {"id":2,"status":"new","amount":2,"note":null}', 'ON CONFLICT DO UPDATE: what became of each');
SELECT pg_temp.tells($$INSERT INTO payments VALUES (1, 'never', 2) ON CONFLICT DO NOTHING$$, NULL, 'ON CONFLICT DO NOTHING');
SELECT pg_temp.tells($$MERGE INTO payments p USING (VALUES (1), (3)) v(id) ON p.id = v.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (v.id)$$,
    '1 deleted {"id":1,"status":"again","amount":1,"note":null}; 3 inserted {"id":3,"status":null,"amount":null,"note":null}', 'MERGE');
COPY payments (id, note) FROM stdin;
4	copied
\.
SELECT pg_temp.tells('', '4 inserted {"id":4,"status":null,"amount":null,"note":"copied"}', 'COPY');
SAVEPOINT s;
INSERT INTO payments VALUES (9);
ROLLBACK TO s;
SELECT pg_temp.tells('TRUNCATE payments', NULL, 'what is rolled back, and TRUNCATE: nothing');
SELECT set_config('outbox.traceparent', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', true) \g /dev/null
INSERT INTO payments VALUES (1);
SELECT is((SELECT headers->>'traceparent' FROM outbox.events), current_setting('outbox.traceparent'), 'with the session''s trace context');
SET LOCAL outbox.traceparent = '';
SET LOCAL session_replication_role = replica;
DELETE FROM outbox.events;
SELECT pg_temp.tells('DELETE FROM payments', NULL, 'what replication applies is told where it was changed');
SET LOCAL session_replication_role = origin;
SELECT throws_ok($$INSERT INTO payments VALUES (1, repeat('x', 1000000))$$, '54000', NULL, 'a row that no event can hold fails the change rather than being lost');

-- ---- what is chosen -----------------------------------------------------------------------------------------------------------------
SELECT results_eq('SELECT "table"::text, aggregate_type, key, inserted, updated, deleted, columns, enabled FROM outbox.captures',
                  $$VALUES ('payments', 'payment', 'id', 'inserted', 'updated', 'deleted', NULL::text[], 'on')$$, 'outbox.captures');
SELECT outbox.capture('payments', NULL, 'id', inserted => 'payment.created', updated => NULL, deleted => NULL, columns => '{status,id}') \g /dev/null
SELECT results_eq('SELECT "table"::text, aggregate_type, key, inserted, updated, deleted, columns, enabled FROM outbox.captures',
                  $$VALUES ('payments', NULL, 'id', 'payment.created', NULL, NULL, '{status,id}'::text[], 'on')$$, 'called again it replaces what it made');
DELETE FROM payments; DELETE FROM outbox.events;
SELECT pg_temp.tells($$INSERT INTO payments VALUES (1, 'new', 1)$$, '1 payment.created {"status":"new","id":1}', 'the columns that were chosen, in that order');
SELECT pg_temp.tells($$UPDATE payments SET status = 'paid'$$, NULL, 'what was not chosen is not told');
SELECT pg_temp.tells($$UPDATE payments SET id = 2$$, '2 payment.created {"status":"paid","id":2}', 'of a change of the key what was chosen');
SELECT pg_temp.tells($$DELETE FROM payments$$, NULL, 'DELETE was not');
SELECT outbox.capture('payments', 'payment', 'note', columns => '{status}') \g /dev/null
SELECT pg_temp.tells($$INSERT INTO payments VALUES (1, 'new', 1, 'k'), (2, 'new', 1, NULL)$$, 'k inserted {"status":"new"}; NULL inserted {"status":"new"}',
    'the key may be any column; NULL is no key');
SELECT pg_temp.tells($$UPDATE payments SET amount = 5$$, NULL, 'an UPDATE of other columns alone: nothing');
SELECT pg_temp.tells($$UPDATE payments SET note = 'k' WHERE id = 2$$, 'NULL deleted {"status":"new"}; k inserted {"status":"new"}', 'the key counts, chosen or not');
-- What a BEFORE trigger changes is a change, though the UPDATE does not name the column.
CREATE FUNCTION pg_temp.stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.status := NEW.status || '!'; RETURN NEW; END $$;
CREATE TRIGGER stamp BEFORE UPDATE ON payments FOR EACH ROW EXECUTE FUNCTION pg_temp.stamp();
SELECT pg_temp.tells($$UPDATE payments SET amount = 6 WHERE id = 1$$, 'k updated {"status":"new!"}', 'what a BEFORE trigger made of the row counts');
SELECT outbox.uncapture('payments') \g /dev/null
SELECT is_empty('SELECT 1 FROM outbox.captures', 'outbox.uncapture');
SELECT pg_temp.tells($$UPDATE payments SET amount = 7$$, NULL, 'nothing more is told');
SELECT throws_ok($$SELECT outbox.uncapture('payments')$$, '42704', 'table public.payments is not captured', 'twice is an error');

-- ---- what is refused ------------------------------------------------------------------------------------------------------------------
CREATE VIEW v AS TABLE payments;
SELECT throws_ok(c, s, m, c) FROM (VALUES
    ($$SELECT outbox.capture('payments', 'payment', 'nothing')$$, '42703', 'table public.payments has no column "nothing" that can be captured'),
    ($$SELECT outbox.capture('payments', 'payment', 'id', columns => '{id,nothing}')$$, '42703', 'table public.payments has no column "nothing" that can be captured'),
    ($$SELECT outbox.capture('payments', 'payment', 'ctid')$$, '42703', NULL),
    ($$SELECT outbox.capture('payments', 'payment', 'id', columns => '{id,id}')$$, '42701', 'a column is named twice'),
    ($$SELECT outbox.capture('payments', 'payment', 'id', columns => '{}')$$, '22023', 'nothing is left to capture'),
    ($$SELECT outbox.capture('payments', 'payment', 'id', NULL, NULL, NULL)$$, '22023', 'nothing is left to capture'),
    ($$SELECT outbox.capture('payments', 'pay ment', 'id')$$, '22023', NULL), ($$SELECT outbox.capture('payments', '', 'id')$$, '22023', 'aggregate_type must not be empty'),
    ($$SELECT outbox.capture('payments', 'payment', 'id', updated => 'a/b')$$, '22023', NULL), ($$SELECT outbox.capture('payments', 'payment', 'id', deleted => '')$$, '22023', NULL),
    ($$SELECT outbox.capture('payments', 'payment', NULL)$$, '22004', NULL), ($$SELECT outbox.capture(NULL, 'payment', 'id')$$, '22004', NULL),
    ($$SELECT outbox.capture('v', 'payment', 'id')$$, '42809', NULL), ($$SELECT outbox.capture('outbox.scheduled', 'payment', 'id')$$, '22023', 'tables of outbox cannot be captured'),
    ($$CREATE TRIGGER t BEFORE INSERT ON payments FOR EACH ROW EXECUTE FUNCTION outbox.capture_row('a', 'id', 'i', 'u', 'd'); INSERT INTO payments VALUES (77)$$, '39P01', NULL),
    ($$CREATE TRIGGER t AFTER INSERT ON payments EXECUTE FUNCTION outbox.capture_row('a', 'id', 'i', 'u', 'd'); INSERT INTO payments VALUES (77)$$, '39P01', NULL),
    ($$CREATE TRIGGER t AFTER INSERT ON payments FOR EACH ROW EXECUTE FUNCTION outbox.capture_row('a', 'id'); INSERT INTO payments VALUES (77)$$, '39P01', NULL)) x(c, s, m);
SELECT is_empty('SELECT 1 FROM outbox.captures', 'and nothing is left of it');

-- ---- names and columns of every kind -----------------------------------------------------------------------------------------------------
CREATE SCHEMA "Odd ""Schema";
CREATE DOMAIN "Odd ""Schema".amount AS numeric CHECK (value > 0);
CREATE TYPE "Odd ""Schema".mood AS ENUM ('sad', 'so "so"');
CREATE TYPE "Odd ""Schema".pair AS (a int, b text);
CREATE TABLE "Odd ""Schema"."Täble 'x'" (gone text, "Kéy" uuid PRIMARY KEY, gone_too int, "a\000b \ "" c" text, b bytea, f float8, n numeric, j json, jb jsonb, t timestamptz, d date,
    iv interval, arr int[], am "Odd ""Schema".amount, m "Odd ""Schema".mood, p "Odd ""Schema".pair, r tstzrange, doubled int GENERATED ALWAYS AS (2 * 21) STORED);
ALTER TABLE "Odd ""Schema"."Täble 'x'" DROP gone, DROP gone_too, ADD later text DEFAULT 'the default';
SELECT outbox.capture('"Odd ""Schema"."Täble ''x''"', 'odd', 'Kéy', 'ïnserted ''x'' "y" \000', columns => NULL) \g /dev/null
SELECT results_eq('SELECT "table"::text, key, inserted FROM outbox.captures', $$VALUES ('"Odd ""Schema"."Täble ''x''"', 'Kéy', 'ïnserted ''x'' "y" \000')$$, 'odd names');
SET LOCAL datestyle = 'German'; SET LOCAL intervalstyle = 'iso_8601'; SET LOCAL bytea_output = 'escape'; SET LOCAL extra_float_digits = -15; SET LOCAL timezone = 'Asia/Kolkata';
SELECT pg_temp.tells($$INSERT INTO "Odd ""Schema"."Täble 'x'" VALUES ('11111111-1111-1111-1111-111111111111', E'q"\\\n', '\x00ff5c', 0.1::float8 + 0.2::float8, 'NaN',
        '{"x":  [1]}', '{"y":  [1]}', '2026-11-30 12:00:00+05:30', '2026-11-30', '1 day 2 hours', '{1,NULL}', 1.50, 'so "so"', '(1,"x y")', '[2026-11-30 00:00+05:30,)')$$,
    '11111111-1111-1111-1111-111111111111 ïnserted ''x'' "y" \000 {"Kéy":"11111111-1111-1111-1111-111111111111","a\\000b \\ \" c":"q\"\\\n","b":"\\x00ff5c",'
    || '"f":0.30000000000000004,"n":"NaN","j":{"x":  [1]},"jb":{"y": [1]},"t":"2026-11-30T06:30:00+00:00","d":"2026-11-30","iv":"1 day 02:00:00","arr":[1,null],'
    || '"am":1.50,"m":"so \"so\"","p":{"a":1,"b":"x y"},"r":"[\"2026-11-29 18:30:00+00\",)","doubled":42,"later":"the default"}',
    'columns of many types, one with each of a session''s settings that would change their text');
SELECT results_eq($$SELECT current_setting(s) FROM unnest('{datestyle,intervalstyle,bytea_output,extra_float_digits,timezone}'::text[]) s$$,
                  $$VALUES ('German, DMY'), ('iso_8601'), ('escape'), ('-15'), ('Asia/Kolkata')$$, 'which are as they were afterwards');
RESET datestyle; RESET intervalstyle; RESET bytea_output; RESET extra_float_digits; RESET timezone;
SELECT outbox.capture('"Odd ""Schema"."Täble ''x''"', 'odd', 'Kéy', columns => ARRAY['a\000b \ " c', 'later']) \g /dev/null
SELECT is((SELECT columns FROM outbox.captures), ARRAY['a\000b \ " c', 'later'], 'odd names of columns');
SELECT pg_temp.tells($$UPDATE "Odd ""Schema"."Täble 'x'" SET later = 'x', n = 5$$, '11111111-1111-1111-1111-111111111111 updated {"a\\000b \\ \" c":"q\"\\\n","later":"x"}',
    'a row from before the column was added');
ALTER TABLE "Odd ""Schema"."Täble 'x'" ADD more int;
SELECT pg_temp.tells($$UPDATE "Odd ""Schema"."Täble 'x'" SET more = 1$$, NULL, 'a new column is not among those chosen');
SELECT outbox.capture('"Odd ""Schema"."Täble ''x''"', 'odd', 'Kéy', columns => '{more}') \g /dev/null
ALTER TABLE "Odd ""Schema"."Täble 'x'" RENAME more TO less;
SELECT throws_ok($$UPDATE "Odd ""Schema"."Täble 'x'" SET less = 2$$, '42703', 'column "more" of table "Täble ''x''", which outbox captures, is not there any more',
                 'a column that was renamed is an error, and not a member that is missing');
SELECT outbox.capture('"Odd ""Schema"."Täble ''x''"', 'odd', 'Kéy', columns => '{less}') \g /dev/null
SELECT pg_temp.tells($$UPDATE "Odd ""Schema"."Täble 'x'" SET less = 2$$, '11111111-1111-1111-1111-111111111111 updated {"less":2}', 'until it is captured again');
DROP TABLE "Odd ""Schema"."Täble 'x'";
SELECT is_empty('SELECT 1 FROM outbox.captures', 'DROP TABLE takes the capture along');

-- What is stored out of line is compared by what it says.
CREATE TABLE large (id int PRIMARY KEY, body text, other int);
ALTER TABLE large ALTER body SET STORAGE EXTERNAL;
SELECT outbox.capture('large', NULL, 'id', columns => '{body}') \g /dev/null
INSERT INTO large VALUES (1, repeat('x', 100000), 1);
DELETE FROM outbox.events;
SELECT pg_temp.tells($$UPDATE large SET other = 2$$, NULL, 'a large column that is left alone');
SELECT pg_temp.tells($$UPDATE large SET body = repeat('x', 100000)$$, NULL, 'one that is written again as it was');
UPDATE large SET body = repeat('x', 99999) || 'y';
SELECT is((SELECT payload->>'body' FROM outbox.events), repeat('x', 99999) || 'y', 'one that has changed');
DELETE FROM outbox.events;

SELECT current_setting('server_version_num')::int >= 180000 AS has_virtual \gset
\if :has_virtual
CREATE TABLE computed (id int PRIMARY KEY, doubled int GENERATED ALWAYS AS (2 * id) VIRTUAL);
SELECT throws_ok($$SELECT outbox.capture('computed', NULL, 'doubled')$$, '42703', NULL, 'a virtual generated column is not in the row: no key');
SELECT outbox.capture('computed', NULL, 'id') \g /dev/null
SELECT pg_temp.tells($$INSERT INTO computed VALUES (1)$$, '1 inserted {"id":1}', 'and left out');
DROP TABLE computed;
\endif

-- ---- tables of every kind ----------------------------------------------------------------------------------------------------------------
CREATE TABLE parted (id int, region text, v int, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE parted_eu PARTITION OF parted FOR VALUES IN ('eu');
CREATE TABLE parted_us (v int, x int, region text NOT NULL, id int NOT NULL);
ALTER TABLE parted_us DROP x;
ALTER TABLE parted ATTACH PARTITION parted_us FOR VALUES IN ('us');
SELECT outbox.capture('parted', 'p', 'id', columns => '{id,v}') \g /dev/null
CREATE TABLE parted_rest PARTITION OF parted DEFAULT;
SELECT pg_temp.tells($$INSERT INTO parted VALUES (1, 'eu', 1), (2, 'us', 2), (3, 'later', 3)$$, '1 inserted {"id":1,"v":1}; 2 inserted {"id":2,"v":2}; 3 inserted {"id":3,"v":3}',
    'all partitions of a partitioned table, whatever the order of their columns, those that came later too');
SELECT pg_temp.tells($$UPDATE parted_us SET v = 22$$, '2 updated {"id":2,"v":22}', 'by way of the partition too');
SELECT pg_temp.tells($$UPDATE parted SET region = 'us' WHERE id = 1$$, '1 deleted {"id":1,"v":1}; 1 inserted {"id":1,"v":1}', 'a row that moves to another partition: as the server does it');
SELECT results_eq('SELECT "table"::text FROM outbox.captures ORDER BY 1', $$VALUES ('large'), ('parted')$$, 'listed once');
SELECT throws_ok($$SELECT outbox.capture('parted_eu', 'p', 'id')$$, '42809', 'table public.parted_eu is captured with the partitioned table that it is a partition of', 'nor a second time by itself');
SELECT throws_ok($$SELECT outbox.uncapture('parted_eu')$$, '42809', 'table public.parted_eu is captured with the partitioned table that it is a partition of', 'nor is it let go by itself');
SELECT outbox.capture('parted', 'p', 'id', inserted => 'made') \g /dev/null
SELECT pg_temp.tells($$INSERT INTO parted VALUES (5, 'us', 5)$$, '5 made {"v":5,"region":"us","id":5}', 'replaced in all of them');
SELECT outbox.uncapture('parted') \g /dev/null
SELECT pg_temp.tells($$UPDATE parted SET v = 0$$, NULL, 'and taken away');
CREATE TABLE parent (id int, v int);
CREATE TABLE child () INHERITS (parent);
SELECT outbox.capture('parent', 'p', 'id') \g /dev/null
SELECT pg_temp.tells($$INSERT INTO parent VALUES (1, 1); INSERT INTO child VALUES (2, 2); UPDATE parent SET v = 3$$, '1 inserted {"id":1,"v":1}; 1 updated {"id":1,"v":3}',
    'tables that inherit are captured by themselves');
CREATE TEMP TABLE parent (id int, v int);
SELECT outbox.capture('pg_temp.parent', 'temp', 'id') \g /dev/null
SELECT pg_temp.tells($$INSERT INTO pg_temp.parent VALUES (1, 1)$$, '1 inserted {"id":1,"v":1}', 'a temporary table');
DROP TABLE pg_temp.parent;

-- ---- rights --------------------------------------------------------------------------------------------------------------------------------
CREATE ROLE tap_owner;
CREATE ROLE tap_clerk;
SELECT outbox.grant_writer('tap_owner') \g /dev/null
CREATE SCHEMA tap_theirs AUTHORIZATION tap_owner;
GRANT USAGE ON SCHEMA tap_theirs TO tap_clerk;
SET LOCAL ROLE tap_owner;
SET LOCAL search_path = tap_theirs, public;
-- A type of the owner's, which turns into JSON by a function of his.
CREATE TYPE tap_theirs.trap AS ENUM ('set');
CREATE FUNCTION tap_theirs.trap_to_json(tap_theirs.trap) RETURNS json LANGUAGE sql AS $$ SELECT to_json(current_user::text) $$;
CREATE CAST (tap_theirs.trap AS json) WITH FUNCTION tap_theirs.trap_to_json(tap_theirs.trap);
CREATE TABLE tap_theirs.t (id int PRIMARY KEY, trap tap_theirs.trap);
GRANT ALL ON tap_theirs.t TO tap_clerk;
SELECT lives_ok($$SELECT outbox.capture('tap_theirs.t', 't', 'id')$$, 'a writer may capture his table');
SET LOCAL ROLE tap_clerk;
INSERT INTO tap_theirs.t VALUES (1, 'set');
SET LOCAL ROLE tap_owner;
INSERT INTO tap_theirs.t VALUES (2, 'set');
RESET ROLE;
SELECT results_eq('SELECT aggregate_id, payload->>$$trap$$ FROM outbox.events ORDER BY id', $$VALUES ('1', 'tap_clerk'), ('2', 'tap_owner')$$,
                  'whoever changes a row needs no rights on outbox; what it calls runs with his rights, never with those of outbox');
GRANT USAGE ON SCHEMA outbox TO tap_clerk;
SET LOCAL ROLE tap_clerk;
SELECT throws_ok($$SELECT outbox.capture('tap_theirs.t', 't', 'id')$$, '42501', NULL, 'TRIGGER on the table is not enough');
SELECT throws_ok($$CREATE TRIGGER mine AFTER INSERT ON tap_theirs.t FOR EACH ROW EXECUTE FUNCTION outbox.capture_row('t', 'id', 'i', 'u', 'd')$$, '42501', NULL, 'nor by hand');
SELECT throws_ok($$SELECT outbox.add_event('k', 'x', '{}')$$, '42501', NULL, 'and it gives no right to write events');
RESET ROLE;
SELECT outbox.grant_writer('tap_clerk') \g /dev/null
REVOKE TRIGGER ON tap_theirs.t FROM tap_clerk;
SET LOCAL ROLE tap_clerk;
SELECT throws_ok($$SELECT outbox.capture('tap_theirs.t', 't', 'id')$$, '42501', NULL, 'nor is being a writer');
SELECT throws_ok($$SELECT outbox.uncapture('tap_theirs.t')$$, '42501', NULL, 'who is not the owner cannot take it away');
SET LOCAL ROLE tap_owner;
SELECT lives_ok($$SELECT outbox.uncapture('tap_theirs.t')$$, 'the owner can');
RESET ROLE;

SELECT * FROM finish();
ROLLBACK;
