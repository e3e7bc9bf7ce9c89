-- Databases that are not UTF8: what can be sent in UTF-8 is taken, what cannot is refused here and not by a relay.
\set SHOW_CONTEXT never
SET client_min_messages = error;
\set home :DBNAME
DROP DATABASE IF EXISTS regress_outbox_latin1;
CREATE DATABASE regress_outbox_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0;
\c regress_outbox_latin1
SET client_min_messages = error;
SET client_encoding = 'UTF8';
CREATE EXTENSION outbox;
SELECT outbox.add_event('clé', 'créé', '{"é": "\u00e9 ü"}', headers => '{"h": "ä"}') IS NOT NULL AS added;
INSERT INTO outbox.events (aggregate_id, event_type, payload) VALUES ('clé', 'x', '"é"');
SELECT aggregate_id, event_type, payload, headers, convert_to(payload::text, 'LATIN1') AS stored FROM outbox.events ORDER BY id;
-- 255 characters, not bytes, of UTF-8
SELECT outbox.add_event('k', repeat('é', 255), '{}') IS NOT NULL AS added;
SELECT outbox.add_event('k', repeat('é', 256), '{}');
SELECT ok, detail FROM outbox.health WHERE "check" = 'encoding';
-- a key's lane is that of its UTF-8 bytes, whatever the encoding: as in the next database
SELECT outbox.lane_of('clé', 0, 64);

\c :home
SET client_min_messages = error;
SET client_encoding = 'UTF8';
DROP DATABASE regress_outbox_latin1;
CREATE EXTENSION outbox;
SELECT outbox.lane_of('clé', 0, 64);
DROP EXTENSION outbox;

DROP DATABASE IF EXISTS regress_outbox_ascii;
CREATE DATABASE regress_outbox_ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0;
\c regress_outbox_ascii
SET client_min_messages = error;
CREATE EXTENSION outbox;
-- bytes that are UTF-8
SELECT outbox.add_event(convert_from('\x636cc3a9', 'SQL_ASCII'), 'x', convert_from('\x22c3a922', 'SQL_ASCII')) IS NOT NULL AS added;
-- and some that are not
SELECT outbox.add_event(convert_from('\x81', 'SQL_ASCII'), 'x', '{}');
SELECT outbox.add_event('k', convert_from('\x81', 'SQL_ASCII'), '{}');
SELECT outbox.add_event('k', 'x', convert_from('\x228122', 'SQL_ASCII'));
SELECT outbox.add_event('k', 'x', '{}', headers => jsonb_build_object('h', convert_from('\x81', 'SQL_ASCII')));
INSERT INTO outbox.events (event_type, payload) VALUES ('x', convert_from('\x228122', 'SQL_ASCII')::json);
SELECT count(*) FROM outbox.events;
SELECT ok, detail, hint FROM outbox.health WHERE "check" = 'encoding';
\c :home
SET client_min_messages = error;
DROP DATABASE regress_outbox_ascii;
