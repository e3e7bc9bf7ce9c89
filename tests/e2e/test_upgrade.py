"""pg_upgrade with events that are pending: the new cluster publishes them without help, and what was published stays published."""
import pytest
from conftest import Database
from harness import checker
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending


def events(db, key, n):
    db.sql("SELECT outbox.add_event(%s, 'written', to_json(g)::text) FROM generate_series(1, %s) g", [key, n])


@pytest.mark.matrix
def test_pending_late_parked_and_scheduled_events_go_on_after_pg_upgrade(make_pg, kafka, topic):
    old = make_pg(name="old")
    db = Database(old, "shop")
    old.sql("CREATE DATABASE shop")
    db.sql("CREATE EXTENSION outbox")
    # Lanes made in a subtransaction, and by the relay itself.
    with old.connect("shop", autocommit=False) as c:
        c.execute("SAVEPOINT s")
        c.execute(f"""CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka
                      OPTIONS (bootstrap_servers '{kafka.bootstrap}', topic '{topic}', format 'payload')""")
        c.commit()
    make_sink(db, kafka, topic, "second", events="none/none")
    events(db, "published", 20)
    nothing_pending(db)
    db.sql("ALTER SERVER kafka OPTIONS (ADD lanes '2')")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.lanes l JOIN outbox.sinks s USING (sink_id) WHERE s.name = 'kafka'") == 2, 20,
               "two lanes")
    # An event for a topic that is not there yet is parked; one commits late.
    missing = f"{topic}-later"
    db.sql("SELECT outbox.add_event('parked', 'written', '1', topic => %s)", [missing])
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 1, 30, "it is parked")
    with old.connect("shop", autocommit=False) as late:
        late.execute("SELECT outbox.add_event('late', 'written', '1')")
        events(db, "published", 1)
        nothing_pending(db)
        old.configure(outbox__publish="off")
        old.reload()
        eventually(lambda: db.value("SELECT bool_and(state = 'off') FROM outbox.live_relays()"), 10, "switched off")
        late.commit()
    events(db, "pending", 20)
    assert db.value("SELECT count(*) FROM outbox.pending") == 21
    db.sql("SELECT outbox.add_event('scheduled', 'written', '1', deliver_at => now() + interval '8 seconds')")
    old.stop()
    new = make_pg(start=False, name="new")
    old.upgrade(new)
    assert "outbox" not in old.log().split("shutting down")[-1], "something of ours ran in pg_upgrade"
    assert "outbox relay" not in new.log() and "outbox launcher" not in new.log()
    new.start()
    db = Database(new, "shop")
    kafka.create_topic(missing)
    nothing_pending(db)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 60, "what was parked is sent")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.scheduled") == 0, 60, "what was scheduled moves")
    nothing_pending(db)
    assert "go on after pg_upgrade" in new.log()
    written = checker.committed(db)
    assert len(written) == 20 + 1 + 1 + 1 + 20 + 1
    sent = kafka.consume(topic, until=len(written) - 1) + kafka.consume(missing, until=1)
    checker.check(written, sent).must_hold(repeats=0)
    assert db.sql("SELECT \"check\", detail FROM outbox.health WHERE NOT ok") == []
    # A second upgrade, from here: the new home is remembered, too.
    assert db.value("SELECT count(*) FROM outbox.homes") == 2
