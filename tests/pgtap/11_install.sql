-- CREATE EXTENSION runs as a superuser: nothing that others have put in its way may be called by it or by what it makes.
BEGIN;
SELECT * FROM no_plan();
SET client_min_messages = error;
DROP EXTENSION outbox CASCADE;
DROP SCHEMA IF EXISTS outbox;
CREATE ROLE tap_evil;
SELECT format('GRANT CREATE, TEMP ON DATABASE %I TO tap_evil', current_database()) \gexec
GRANT CREATE ON SCHEMA public TO tap_evil;

-- Fits the calls and operators of the script better than those of pg_catalog do; any call is an error.
CREATE FUNCTION pg_temp.set_trap(schema text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    f text;
BEGIN
    SET LOCAL ROLE tap_evil;
    FOREACH f IN ARRAY ARRAY['format(text, integer) RETURNS text', 'format(text, text) RETURNS text', 'format(text, text, text) RETURNS text',
                             'acldefault(text, oid) RETURNS aclitem[]', 'aclexplode(aclitem[]) RETURNS SETOF record',
                             'pg_extension_config_dump(regclass, text) RETURNS void', 'now() RETURNS timestamptz', 'clock_timestamp() RETURNS timestamptz',
                             'ne(name, text) RETURNS boolean', 'eq(name, text) RETURNS boolean', 'eq(oid, regnamespace) RETURNS boolean',
                             'eq("char", text) RETURNS boolean', 'cat(text, regclass) RETURNS text', 'worker_state() RETURNS record'] LOOP
        EXECUTE pg_catalog.format('CREATE FUNCTION %I.%s LANGUAGE plpgsql AS $x$ BEGIN RAISE EXCEPTION ''trapped'' USING ERRCODE = ''ZZ999''; END $x$', schema, f);
    END LOOP;
    EXECUTE pg_catalog.format('CREATE OPERATOR %1$I.= (LEFTARG = name, RIGHTARG = text, FUNCTION = %1$I.eq)', schema);
    EXECUTE pg_catalog.format('CREATE OPERATOR %1$I.<> (LEFTARG = name, RIGHTARG = text, FUNCTION = %1$I.ne)', schema);
    EXECUTE pg_catalog.format('CREATE OPERATOR %1$I.= (LEFTARG = oid, RIGHTARG = regnamespace, FUNCTION = %1$I.eq)', schema);
    EXECUTE pg_catalog.format('CREATE OPERATOR %1$I.= (LEFTARG = "char", RIGHTARG = text, FUNCTION = %1$I.eq)', schema);
    EXECUTE pg_catalog.format('CREATE OPERATOR %1$I.|| (LEFTARG = text, RIGHTARG = regclass, FUNCTION = %1$I.cat)', schema);
    RESET ROLE;
END $$;

SAVEPOINT here;
SELECT pg_temp.set_trap('public');
CREATE TEMP TABLE pg_class (x int);
CREATE TEMP TABLE pg_namespace (x int);
CREATE TEMP TABLE pg_roles (x int);
CREATE TEMP TABLE events (x int);
CREATE TYPE pg_temp.xid8 AS (x int);
CREATE TYPE pg_temp.uuid AS (x int);
SET LOCAL search_path = pg_temp, public, pg_catalog;
CREATE EXTENSION outbox;
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT count(*) AS tables FROM pg_catalog.pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p') \gset
SELECT count(*) AS foreign_types FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE c.relnamespace = 'outbox'::regnamespace AND t.typnamespace NOT IN ('pg_catalog'::regnamespace, 'outbox'::regnamespace) \gset
ROLLBACK TO here;
SET search_path = pg_catalog, public;
SELECT is(:tables, 29, 'CREATE EXTENSION calls nothing in public and nothing temporary; its tables are in its schema');
SELECT is(:foreign_types, 0, 'and its columns of PostgreSQL''s types');

CREATE FUNCTION pg_temp.create_extension() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    CREATE EXTENSION outbox;
    RETURN 'created';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
SAVEPOINT here;

CREATE SCHEMA outbox;
SELECT pg_temp.create_extension() AS answer \gset
ROLLBACK TO here;
SELECT is(:'answer'::text, 'created', 'an empty schema of a superuser''s is taken');
SAVEPOINT here;

CREATE SCHEMA outbox AUTHORIZATION tap_evil;
SELECT pg_temp.create_extension() AS answer \gset
ROLLBACK TO here;
SELECT is(:'answer'::text, '42P06 there is a schema "outbox" that does not belong to a superuser', 'somebody else''s schema is not');
SAVEPOINT here;

-- (One where others may create objects while the script runs is in tests/e2e/test_security.py: it must be there before.)
CREATE SCHEMA outbox;
GRANT CREATE, USAGE ON SCHEMA outbox TO tap_evil;
SELECT pg_temp.set_trap('outbox');
REVOKE CREATE ON SCHEMA outbox FROM tap_evil;
SELECT pg_temp.create_extension() AS answer \gset
ROLLBACK TO here;
SELECT is(:'answer'::text, '42P06 there is a schema "outbox" with objects in it', 'nor one where they have created something');
SAVEPOINT here;

CREATE SCHEMA outbox;
CREATE TYPE outbox.x AS ENUM ('x');
SELECT pg_temp.create_extension() AS answer \gset
ROLLBACK TO here;
SELECT is(:'answer'::text, '42P06 there is a schema "outbox" with objects in it', 'whatever it is');
SAVEPOINT here;

SELECT * FROM finish();
ROLLBACK;
