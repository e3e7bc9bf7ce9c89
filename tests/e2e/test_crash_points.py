"""The relay is held after the broker's acknowledgements and before its own record, and something happens there."""
import pytest
from harness import checker
from harness.factor import patience
from harness.wait import eventually
from harness.workload import GONE, Killer, make_sink, nothing_pending

PG_FLAVOUR = "faults"
BATCH, EVENTS = 100, 250


def set_fault(pg, name):
    """For processes that start from now on; a relay that is held sees it too."""
    pg.configure(outbox__fault=name)
    pg.reload()
    eventually(lambda: pg.value("SELECT current_setting('outbox.fault')") == name, 10, "the setting")


def without_fault(db, done="SELECT count(*) = 0 FROM outbox.pending"):
    """Said again and again: between the fork of a worker and its handler PostgreSQL ignores SIGHUP, and the worker has the settings of before."""
    set_fault(db.pg, "")

    def look():
        db.pg.reload()
        return db.value(done)
    eventually(look, patience(60), done, ignore=GONE, interval=0.5)


@pytest.fixture
def no_fault(pg):
    yield
    set_fault(pg, "")


@pytest.mark.parametrize("kill, copies", [("terminate", 0), ("crash", BATCH), ("immediate_stop", BATCH)])
def test_a_relay_that_ends_between_acknowledgement_and_record(db, kafka, topic, rng, no_fault, kill, copies):
    """B18, B100. A termination waits for the record, so nothing comes twice; after a crash exactly the batch in flight does, the same bytes under
    the same event_id."""
    set_fault(db.pg, "after_acknowledgement")
    make_sink(db, kafka, topic, batch_size=BATCH)
    db.sql("INSERT INTO outbox.events (aggregate_id, event_type, payload, headers)"
           f" SELECT g % 7, 'changed', json_build_object('number', g), '{{\"a\": \"b\"}}' FROM generate_series(1, {EVENTS}) g")
    kafka.consume(topic, until=BATCH)
    assert db.value("SELECT count(*) FROM outbox.pending") == EVENTS
    getattr(Killer(db, rng), kill)()
    without_fault(db)
    events = checker.committed(db)
    verdict = checker.check(events, kafka.consume(topic)).must_hold()
    assert verdict.repeats == copies, str(verdict)


def test_a_record_that_keeps_failing_is_visible_and_sends_nothing_twice(db, kafka, topic):
    """B18."""
    make_sink(db, kafka, topic)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.live_relays() WHERE state = 'idle'") == 1, 30, "an idle relay")
    db.sql("ALTER TABLE outbox.progress ADD CONSTRAINT broken CHECK (batch = 0) NOT VALID")
    db.sql("SELECT outbox.add_event('k', 'changed', '{}') FROM generate_series(1, 5)")
    eventually(lambda: "broken" in (db.value("SELECT last_error FROM outbox.relays") or ""), 30, "the reason in outbox.relays")
    db.sql("SELECT outbox.add_event('k', 'changed', '{}') FROM generate_series(1, 5)")
    kafka.consume(topic, until=10)
    db.sql("ALTER TABLE outbox.progress DROP CONSTRAINT broken")
    nothing_pending(db)
    events = checker.committed(db)
    checker.check(events, kafka.consume(topic)).must_hold(repeats=0)
    eventually(lambda: db.value("SELECT last_error FROM outbox.relays") is None, 30, "no reason any more")
