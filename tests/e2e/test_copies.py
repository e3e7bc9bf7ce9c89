"""Copies of a database: each sink of a copy is halted from its first second; told to, it goes on where the original was."""
import contextlib

import psycopg
import pytest
from conftest import Database
from harness import checker
from harness.wait import eventually, never
from harness.workload import make_sink, nothing_pending, relays

LIVE = "SELECT bool_and(r.state = %s) FROM outbox.live_relays() r"


def events(db, key, n):
    db.sql("SELECT outbox.add_event(%s, 'written', to_json(g)::text) FROM generate_series(1, %s) g", [key, n])


def burn_xids(pg, n):
    with pg.connect() as c:
        c.execute("SET synchronous_commit = off")
        c.execute(f"DO $$ BEGIN FOR i IN 1..{n} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")


def switch(pg, publish):
    pg.configure(outbox__publish=publish)
    pg.reload()


def halted(db, why):
    """As its users see it, and nobody is there who could send."""
    assert db.sql("SELECT state, last_error FROM outbox.lag") == [("halted", why)]
    ok, detail, hint = db.sql("SELECT ok, detail, hint FROM outbox.health WHERE \"check\" = 'sink kafka'")[0]
    assert not ok and why in detail and "SELECT outbox.resume('kafka')" in hint and "DROP SERVER kafka" in hint
    assert db.value("SELECT count(*) FROM outbox.live_relays() WHERE pid IS NOT NULL AND state NOT IN ('starting', 'halted')") == 0


ROWS = {name: f"SELECT {columns} FROM outbox.{name} ORDER BY 1, 2" for name, columns in {
    "events": "id, event_id, aggregate_id, event_type, payload::text, headers, topic, created_at, segment, xid",
    "scheduled": "id, event_id, aggregate_id, payload::text, deliver_at",
    "parked_events": "sink_id, id, event_id, reason, destination, payload::text",
    "discarded": "event_id, reason", "inbox": "consumer, event_id", "progress": "sink_id, epoch, lane, batch, seen::text",
    "segments": "turn, last_id", "sinks": "name, sink_id", "lanes": "sink_id, lane"}.items()}


@contextlib.contextmanager
def in_every_state(db, kafka, topic, missing):
    """A database that publishes no more, with events that are published, pending, late, parked, dead and scheduled."""
    make_sink(db, kafka, topic, lanes=2)
    db.sql("SELECT outbox.inbox_claim('mail', gen_random_uuid())")
    events(db, "published", 20)
    db.sql("SELECT outbox.add_event('parked', 'written', '1', topic => %s)", [missing])
    db.sql("SELECT outbox.add_event('discarded', 'written', '1', topic => %s)", [missing])
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 2, 30, "two are parked")
    db.sql("SELECT outbox.discard('kafka', event_id, 'for once') FROM outbox.parked WHERE aggregate_id = 'discarded'")
    with db.connect(autocommit=False) as late:
        late.execute("SELECT outbox.add_event('late', 'written', to_json(g)::text) FROM generate_series(1, 5) g")
        events(db, "published", 10)
        nothing_pending(db)
        switch(db.pg, "off")
        try:
            eventually(lambda: db.value(LIVE, ["off"]), 10, "publishing is off")
            # A change of lanes is under way, and what commits after its point is late for the new lanes.
            with db.connect(autocommit=False) as later:
                later.execute("SELECT outbox.add_event('later', 'written', '1')")
                events(db, "pending", 20)
                db.sql("ALTER SERVER kafka OPTIONS (SET lanes '3')")
                eventually(lambda: db.sql("SELECT 1 FROM outbox.lane_changes"), 20, "a change of lanes")
                later.commit()
            late.commit()
            db.sql("SELECT outbox.add_event('scheduled', 'written', '1', deliver_at => now() + interval '1 day')")
            assert db.value("SELECT count(*) FROM outbox.pending") == 26
            yield
        finally:
            switch(db.pg, "on")


def copy_goes_on(copy, kafka, topic, missing):
    """The copy is resumed; with what the original sent before, each event is there once."""
    copy.sql("SELECT outbox.resume('kafka')")
    kafka.create_topic(missing)
    copy.sql("UPDATE outbox.scheduled SET deliver_at = now()")
    eventually(lambda: copy.value("SELECT count(*) FROM outbox.scheduled") == 0, 90, "what was scheduled moves")
    # A transaction that is open while later events are published, with an id below those of the restored rows.
    with copy.connect(autocommit=False) as late:
        late.execute("SELECT outbox.add_event('late again', 'written', '1')")
        events(copy, "new", 10)
        nothing_pending(copy)
        late.commit()
    nothing_pending(copy)
    eventually(lambda: copy.value("SELECT count(*) FROM outbox.parked_events") == 0, 60, "what was parked is sent")
    written = checker.committed(copy, "aggregate_id <> 'discarded'")
    assert len(written) == 20 + 1 + 5 + 10 + 1 + 20 + 1 + 1 + 1 + 10
    sent = kafka.consume(topic, until=len(written) - 1) + kafka.consume(missing, until=1)
    checker.check(written, sent).must_hold(repeats=0)
    assert copy.sql("SELECT \"check\", detail FROM outbox.health WHERE NOT ok") == []


def dump_to_a_new_cluster(db, new):
    """B101"""
    dump = db.pg.dir / "dump"
    db.pg.run("pg_dump", "-Fc", "-d", db.name, "-f", db.pg.inner(dump))
    new.run("pg_restore", "-j4", "-d", "copy", db.pg.inner(dump))
    dump.unlink()
    assert new.value("SELECT pg_current_xact_id()::text::bigint") < db.value("SELECT min(xid::text::bigint) FROM outbox.events")
    return "published by another cluster: this one is a restored copy"


def dump_to_the_same_cluster(db, new):
    new.psql(db.dump(), dbname="copy")
    return "published by another database of this cluster: this one is a copy of it"


@pytest.mark.parametrize("restore", [dump_to_a_new_cluster, dump_to_the_same_cluster])
def test_a_restored_dump_is_halted_and_goes_on_when_it_is_told_to(db, make_pg, kafka, topic, restore):
    burn_xids(db.pg, 5000)
    missing = f"{topic}-later"
    new = make_pg(name="new") if restore is dump_to_a_new_cluster else db.pg
    new.sql("CREATE DATABASE copy")
    copy = Database(new, "copy")
    with in_every_state(db, kafka, topic, missing):
        why = restore(db, new)
        halted(copy, why)
        for name, query in ROWS.items():  # B100: ids and payloads, too
            assert copy.sql(query) == db.sql(query), name
        assert copy.value("SELECT count(*) FROM outbox.homes") == 0
        # Written before it is resumed: the id goes on where the original's were.
        copy.sql("SELECT outbox.add_event('new', 'written', '1')")
        assert copy.value("SELECT max(id) FROM outbox.events") > db.value("SELECT max(id) FROM outbox.events")
        never(lambda: relays(copy), 0.5, "a relay in the copy")
        assert "COPY" not in db.dump("--schema-only")
        db.sql("DROP SERVER kafka CASCADE")
    copy_goes_on(copy, kafka, topic, missing)
    new.sql("DROP DATABASE copy")


def test_a_sink_that_is_created_again_in_a_restored_copy_sends_nothing_twice(db, make_pg, kafka, topic):
    """The way around outbox.resume: what is remembered of the sink's name is another cluster's."""
    burn_xids(db.pg, 5000)
    make_sink(db, kafka, topic)
    events(db, "published", 20)
    nothing_pending(db)
    new = make_pg(name="new")
    new.sql("CREATE DATABASE copy")
    copy = Database(new, "copy")
    dump_to_a_new_cluster(db, new)
    db.sql("DROP SERVER kafka CASCADE")
    for change in ("DROP home", f"SET home '{copy.value('SELECT home FROM outbox.worker_state()')}'"):
        with pytest.raises(psycopg.Error, match='option "home" is set by outbox itself'):
            copy.sql(f"ALTER SERVER kafka OPTIONS ({change})")
    copy.sql("DROP SERVER kafka CASCADE")
    make_sink(copy, kafka, topic)
    for linger in "12":
        events(copy, "new", 1)
        nothing_pending(copy)
        copy.sql(f"ALTER SERVER kafka OPTIONS ({'ADD' if linger == '1' else 'SET'} linger_ms '{linger}')")  # everything is looked at anew
    events(copy, "new", 1)
    kafka.consume(topic, until=23)
    nothing_pending(copy)
    assert sum(kafka.end_offsets(topic).values()) == 23


def test_a_physical_copy_under_another_name_is_halted_beside_the_original(make_pg, kafka, topic):
    pg = make_pg(conf={"outbox.instance": "production"})
    pg.sql("CREATE DATABASE shop")
    db = Database(pg, "shop")
    db.sql("CREATE EXTENSION outbox")
    missing = f"{topic}-later"
    with in_every_state(db, kafka, topic, missing):
        with pg.base_backup(conf={"outbox.instance": "staging", "outbox.publish": "on"}) as server:
            server.start()
            copy = Database(server, "shop")
            why = 'published under outbox.instance "production", and this is "staging"'
            halted(copy, why)
            # The original goes on; then the copy is to send to a topic of its own.
            switch(pg, "on")
            nothing_pending(db)
            halted(copy, why)
            events(copy, "new", 1)
            new = kafka.create_topic()
            copy.sql(f"ALTER SERVER kafka OPTIONS (SET topic '{new}')")
            halted(copy, why)
            assert not relays(copy)
            copy.sql("SELECT outbox.resume('kafka')")
            nothing_pending(copy)
            waited = checker.committed(copy, "aggregate_id IN ('late', 'later', 'pending', 'new')")
            checker.check(waited, kafka.consume(new, until=checker.has_all(waited)), ordered=False).must_hold(repeats=0)
            assert len(waited) == 27
    written = checker.committed(db, "topic IS NULL")
    checker.check(written, kafka.consume(topic, until=checker.has_all(written))).must_hold(repeats=0)
