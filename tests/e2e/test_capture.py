"""outbox.capture under load, and in a dump. What it tells of which row is in tests/pgtap/21_capture_rows.sql."""
import json
import re

import pytest
from harness import checker
from harness.factor import scaled
from harness.workload import make_sink, nothing_pending

TABLE = """CREATE TABLE accounts (id bigint PRIMARY KEY, owner text, balance numeric, photo bytea, seen timestamptz);
    CREATE SEQUENCE fresh START 1000000"""
# Rows come, change, go, come again under the same key, and move to another key. One row at a time, so that nobody deadlocks.
SCRIPT = r"""
\set id random(1, 200)
\set what random(1, 10)
\if :what <= 3
INSERT INTO accounts VALUES (:id, 'owner ' || :client_id, :id / 7.0, decode(md5(:id::text), 'hex'), now()) ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, balance = NULL;
\elif :what <= 6
UPDATE accounts SET balance = coalesce(balance, 0) + 0.01 WHERE id = :id;
\elif :what <= 7
UPDATE accounts SET owner = owner WHERE id = :id;
\elif :what <= 8
DELETE FROM accounts WHERE id = :id;
\elif :what <= 9
UPDATE accounts SET id = nextval('fresh') WHERE id = :id;
\else
BEGIN;
UPDATE accounts SET seen = now() WHERE id = :id;
DELETE FROM accounts WHERE id = :id;
INSERT INTO accounts (id) VALUES (:id) ON CONFLICT DO NOTHING;
ROLLBACK;
\endif
"""


def pgbench(db, text, *args):
    file = db.pg.dir / "script.sql"
    file.write_text(text)
    file.chmod(0o644)
    return db.pg.run("pgbench", "-n", "-M", "prepared", "-c", "8", "-j", "2", *map(str, args), "-f", str(db.pg.inner(file)), db.name).stdout


def replayed(events):
    """The table as the events tell it: (key, type, payload) in order."""
    rows = {}
    for key, type, payload in events:
        if type == "inserted":
            assert key not in rows, f"{key} is inserted and there already"
        else:
            assert key in rows, f"{key} is {type} and not there"
        if type == "deleted":
            assert rows.pop(key) == payload, f"{key} was another when it was deleted"
        else:
            assert rows.get(key) != payload, f"{key} is told to be as it was"
            rows[key] = payload
    return rows


@pytest.mark.matrix
def test_the_events_equal_the_changes(db, kafka, topic):
    """Under pgbench, through the relay and Kafka: replayed key by key in the topic's order they make the table, and no change is told twice."""
    db.sql(TABLE)
    db.sql("INSERT INTO accounts SELECT i, 'first', i FROM generate_series(1, 100) i")
    before = dict(db.sql("SELECT id::text, row_to_json(a)::text FROM accounts a"))
    make_sink(db, kafka, topic)
    db.sql("SELECT outbox.capture('accounts', 'account', 'id')")
    pgbench(db, SCRIPT, "-t", scaled(400))
    nothing_pending(db)
    events = checker.committed(db)
    records = kafka.consume(topic, until=checker.has_all(events))
    checker.check(events, records).must_hold(repeats=0)
    start = [(key, "inserted", json.loads(row)) for key, row in before.items()]
    told = replayed(start + [(r.key.decode(), r.header("event_type"), r.json()) for r in records])
    assert told == {key: json.loads(row) for key, row in db.sql("SELECT id::text, row_to_json(a)::text FROM accounts a")}
    assert len(records) > 1000 and {r.header("event_type") for r in records} == {"inserted", "updated", "deleted"}


def test_what_it_costs_beside_the_bare_table(db):
    """Reported, not asserted. Four updates a transaction, so that the commit does not hide what a row costs."""
    db.sql("CREATE TABLE bare (id int PRIMARY KEY, owner text, balance numeric, seen timestamptz); CREATE TABLE captured (LIKE bare INCLUDING ALL)")
    for table in ("bare", "captured"):
        db.sql(f"INSERT INTO {table} SELECT i, 'an owner', i, now() FROM generate_series(1, 10000) i")
    db.sql("SELECT outbox.capture('captured', 'account', 'id'); ALTER DATABASE " + db.name + " SET synchronous_commit = off")
    script = "\n".join(["BEGIN;", *(f"\\set id{n} random({n * 2500 + 1}, {n * 2500 + 2500})\nUPDATE {{0}} SET balance = balance + 1 WHERE id = :id{n};"
                                    for n in range(4)), "COMMIT;"])
    rates = {"bare": [], "captured": []}
    for _ in range(scaled(2)):
        for table, found in rates.items():
            said = pgbench(db, script.format(table), "-t", 250)
            found.append(float(re.search(r"^tps = ([\d.]+)", said, re.M)[1]))
    best = {table: max(found) for table, found in rates.items()}
    print(f"transactions of four updates a second: {best}; with capture {best['captured'] / best['bare']:.2f} times as many")
    assert db.value("SELECT count(*) FROM outbox.events") == 4 * 8 * 250 * scaled(2)


def test_a_dump_brings_the_capture_along(db, make_db):
    """Its rows do not come a second time as events."""
    db.sql("""CREATE TABLE "odd 'name" (gone int, "the key" int PRIMARY KEY, v text); ALTER TABLE "odd 'name" DROP gone""")
    db.sql("""SELECT outbox.capture('"odd ''name"', 'a', 'the key', 'it''s \\ here', updated => NULL, columns => '{v}')""")
    db.sql("""INSERT INTO "odd 'name" VALUES (1, 'x')""")
    copy = make_db(extension=False)
    copy.psql(db.dump())
    captures = 'SELECT "table"::text, aggregate_type, key, inserted, updated, deleted, columns FROM outbox.captures'
    assert copy.sql(captures) == db.sql(captures) == [("\"odd 'name\"", "a", "the key", "it's \\ here", None, "deleted", ["v"])]
    assert copy.value("SELECT count(*) FROM outbox.events") == 1
    copy.sql("""INSERT INTO "odd 'name" VALUES (2, 'y')""")
    assert copy.sql("SELECT aggregate_id, event_type, payload::text FROM outbox.events ORDER BY id DESC LIMIT 1") == [("2", "it's \\ here", '{"v":"y"}')]


def test_the_extension_cannot_be_dropped_from_under_a_captured_table(db):
    db.sql("CREATE TABLE t (id int PRIMARY KEY); SELECT outbox.capture('t', 't', 'id')")
    assert "depends on function outbox.capture_row()" in db.pg.run("psql", "-d", db.name, "-c", "DROP EXTENSION outbox", check=False).stderr
    db.sql("DROP EXTENSION outbox CASCADE")
    db.sql("INSERT INTO t VALUES (1)")
