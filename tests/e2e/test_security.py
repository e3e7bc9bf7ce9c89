"""What somebody without superuser's rights might try, where it takes a real server to see it."""
import re

import psycopg
import pytest
from conftest import Database
from harness import checker
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending


@pytest.mark.long
def test_kinit_runs_only_where_somebody_who_may_run_programs_has_set_it_up(make_pg):
    """For GSSAPI, its default mechanism, librdkafka puts together a shell command, and refuses to without a key table."""
    pg = make_pg(start=False)
    programs, ran = pg.dir / "bin", pg.dir / "kinit-ran"
    programs.mkdir()
    kinit = programs / "kinit"
    kinit.write_text(f"#!/bin/sh\necho \"$@\" >> {pg.inner(ran)}\n")
    kinit.chmod(0o755)
    pg.start(wrapper=["env", f"PATH={pg.inner(programs)}:/usr/bin:/bin"])
    pg.sql("CREATE EXTENSION outbox; CREATE ROLE sinks LOGIN; GRANT USAGE ON FOREIGN DATA WRAPPER outbox_kafka TO sinks")
    pg.sql("""CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka
              OPTIONS (bootstrap_servers '127.0.0.1:1', security_protocol 'SASL_PLAINTEXT', sasl_mechanism 'GSSAPI')""", user="sinks")
    pg.sql("SELECT outbox.add_event('k', 'x', '{}')")
    eventually(lambda: "keytab" in (pg.value("SELECT last_error FROM outbox.lag") or ""), 20, "it is refused")
    assert not ran.exists()
    pg.sql("ALTER SERVER kafka OPTIONS (ADD sasl_kerberos_keytab '/nowhere')")
    eventually(ran.exists, 20, "it runs for the superuser's key table")
    assert "/nowhere" in ran.read_text()


def test_a_schema_in_which_others_may_create_objects_is_refused(make_db):
    db = make_db(extension=False)
    db.sql("CREATE SCHEMA outbox; GRANT CREATE ON SCHEMA outbox TO PUBLIC")
    with pytest.raises(psycopg.errors.DuplicateSchema, match="in which others may create objects"):
        db.sql("CREATE EXTENSION outbox")
    db.sql("REVOKE CREATE ON SCHEMA outbox FROM PUBLIC; CREATE EXTENSION outbox")


def test_json_that_jsonb_could_not_hold_is_sent_as_it_was_written(db, kafka, topic):
    """B01"""
    make_sink(db, kafka, topic)
    payloads = [r'{"a":"x\u0000y"}', r'{"a":"\ud83d"}']
    for payload in payloads:
        db.sql("SELECT outbox.add_event('k', 'written', %s)", [payload])
    assert [r.value.decode() for r in kafka.consume(topic, until=2)] == payloads
    with db.connect(autocommit=False) as c:  # refused or taken: the caller's transaction is not lost
        c.execute(r"""DO $$ BEGIN PERFORM outbox.add_event('k', 'written', '{"a":'); EXCEPTION WHEN invalid_text_representation THEN NULL; END $$""")
        c.execute("SELECT outbox.add_event('k', 'written', '1')")
        c.commit()
    assert len(kafka.consume(topic, until=3)) == 3


def test_row_level_security_hides_no_event_in_silence(db, kafka, topic):
    make_sink(db, kafka, topic)
    db.sql("CREATE ROLE rls_writer LOGIN; SELECT outbox.grant_writer('rls_writer')")
    try:
        for table in ("events", *(f"events_{k}" for k in range(16)), "sinks", "lanes", "progress", "counters", "parked_events", "segments", "scheduled", "homes"):
            db.sql(f"ALTER TABLE outbox.{table} ENABLE ROW LEVEL SECURITY; ALTER TABLE outbox.{table} FORCE ROW LEVEL SECURITY")
        with db.connect(user="rls_writer") as c:
            c.execute("SELECT outbox.add_event('k', 'written', '1')")
            # Other than add_event, a plain INSERT is the table's: it is refused, not swallowed.
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                c.execute("INSERT INTO outbox.events (event_type) VALUES ('written')")
        db.sql("INSERT INTO outbox.events (aggregate_id, event_type, payload) VALUES ('k', 'written', '2')")
        db.sql("SELECT outbox.add_event('k', 'written', '3', deliver_at => now() + interval '0.1 s')")
        db.sql("SELECT pg_terminate_backend(pid) FROM outbox.relays WHERE pid IS NOT NULL")
        eventually(lambda: db.value("SELECT count(*) FROM outbox.scheduled") == 0, 20, "what was scheduled moves")
        nothing_pending(db)
        events = checker.committed(db)
        assert len(events) == 3
        checker.check(events, kafka.consume(topic, until=3)).must_hold(repeats=0)
    finally:
        db.sql("DROP OWNED BY rls_writer CASCADE; DROP ROLE rls_writer")


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def test_names_with_quotes_and_of_63_bytes_are_only_names(pg, kafka, topic):
    name = "a b\"; DROP TABLE x; -- ' \\ é"
    sink = ("s'i\"n%k$1 ü" * 9).encode()[:63].decode(errors="ignore")
    pg.sql(f"CREATE DATABASE {quoted(name)}")
    db = Database(pg, name)
    try:
        db.sql("CREATE EXTENSION outbox")
        make_sink(db, kafka, topic, quoted(sink))
        db.sql("SELECT outbox.add_event('k', 'written', '1', aggregate_type => 'a.b-c_d')")
        nothing_pending(db)
        assert len(kafka.consume(topic, until=1)) == 1
        assert {ok for _, ok, _ in db.sql("SELECT * FROM outbox.test_sink(%s)", [sink])} == {True}
        # What outbox.health proposes can be run as it stands.
        db.sql("SELECT outbox.pause(%s)", [sink])
        hint = db.value("SELECT hint FROM outbox.health WHERE \"check\" = %s", [f"sink {sink}"])
        db.psql(hint)
        eventually(lambda: db.value("SELECT state FROM outbox.lag") == "idle", 20, "it goes on")
        db.sql(f"DROP SERVER {quoted(sink)} CASCADE")
        make_sink(db, kafka, topic, quoted(sink), home="1/2/it''s")  # as a dump brings it
        ok, hint = db.sql("SELECT ok, hint FROM outbox.health WHERE \"check\" = %s", [f"sink {sink}"])[0]
        assert not ok
        for command in re.findall(r"(SELECT outbox\.resume.*?\)|DROP SERVER .*)\.", hint):
            db.psql(command + ";")
        assert db.sql("SELECT * FROM outbox.lag") == []
        pg.sql(f"ALTER DATABASE {quoted(name)} RENAME TO {quoted(name + '2')}")
        name += "2"
    finally:
        pg.sql(f"DROP DATABASE {quoted(name)} WITH (FORCE)")
