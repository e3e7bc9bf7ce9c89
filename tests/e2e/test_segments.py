"""The ring of segments turns, and old segments are truncated, while events are written."""
import json
import random
import threading

import pytest
from harness import checker
from harness.wait import eventually, never
from harness.workload import Threads, make_sink, nothing_pending, pause

PG_CONF = {"outbox.retention": "1s"}  # so the ring turns every five seconds, as often as it ever does
WRITERS, KEYS = 4, 6


class Writers:
    """They keep what they committed, since the log will not: events of a few keys, each with its key's version."""

    def __init__(self, db, seed):
        self.db, self.seed, self.threads = db, seed, Threads()
        self.committed, self.lock, self.stopped = [], threading.Lock(), threading.Event()
        db.sql("CREATE TABLE key (key int PRIMARY KEY, version int NOT NULL);"
               f" INSERT INTO key SELECT g, 0 FROM generate_series(0, {KEYS}) g")

    def start(self):
        for number in range(WRITERS):
            self.threads.start(self.write, number)

    def write(self, number):
        rng = random.Random(self.seed * 1000 + number)
        with self.db.connect(autocommit=False) as c:
            while not self.stopped.is_set():
                events = [self.change(c, rng.randrange(KEYS) + 1)]
                pause(rng, 0.03)
                if rng.random() < 0.2:
                    c.rollback()
                    continue
                c.commit()
                with self.lock:
                    self.committed += events
                pause(rng, 0.1)

    @staticmethod
    def change(c, key):
        version = c.execute("UPDATE key SET version = version + 1 WHERE key = %s RETURNING version", [key]).fetchone()[0]
        payload = json.dumps({"version": version})
        identity = c.execute("SELECT outbox.add_event(%s, 'changed', %s)::text", [key, payload]).fetchone()[0]
        return checker.Event(identity, str(key), payload.encode(), version)


def turn(db):
    return db.value("SELECT last_value FROM outbox.turn")


def truncated(db):
    return db.value("SELECT count(*) FROM outbox.segments WHERE truncated_at IS NOT NULL")


@pytest.mark.parametrize("turns", [1, pytest.param(17, marks=pytest.mark.long, id="once_round")])
def test_nothing_is_lost_while_the_ring_turns_and_old_segments_are_truncated(db, kafka, topic, seed, turns):
    """B72, B75. What keeps an old segment: a writer that is still open, then events that the sink, which is paused, has not had."""
    make_sink(db, kafka, topic, lanes=2, batch_size=50)
    writers = Writers(db, seed)
    claim = "SELECT outbox.inbox_claim('somebody', '11111111-1111-1111-1111-111111111111')"
    assert db.value(claim)
    with db.connect(autocommit=False) as late:
        events = [Writers.change(late, 0), Writers.change(late, 0)]  # in the first segment; committed when it is an old one
        writers.start()
        eventually(lambda: turn(db) >= 1, 30, "the ring turns", interval=0.2)
        eventually(lambda: len({p for p, in db.sql("SELECT tableoid::regclass FROM outbox.events")}) > 1, 10, "events in two segments")
        db.sql("SELECT outbox.pause('kafka')")
        late.commit()
    writers.committed += events
    eventually(lambda: turn(db) >= 2, 30, "the ring turns", interval=0.2)
    never(lambda: truncated(db), 1, "an old segment is truncated", interval=0.2)
    db.sql("SELECT outbox.resume('kafka')")
    eventually(lambda: truncated(db) >= turns, 30 + 15 * turns, f"{turns} segments are truncated", interval=0.2)
    writers.stopped.set()
    writers.threads.join()
    nothing_pending(db)
    verdict = checker.check(writers.committed, kafka.consume(topic))
    print(verdict)
    verdict.must_hold(repeats=0)
    assert len(checker.committed(db)) < len(writers.committed)
    assert db.value(claim) is False, "the inbox is no log: it keeps what was claimed (B98)"


def test_an_outage_in_the_batch_that_ends_a_segment_loses_nothing(db, kafka, topic):
    """While a batch is on its way the next one is read, from a newer segment: the old one looks finished, and is not."""
    make_sink(db, kafka, topic, batch_size=200, delivery_timeout="1s")
    db.sql("SELECT outbox.pause('kafka')")
    db.sql("SELECT outbox.add_event('key-' || g % 7, 'changed', g::text) FROM generate_series(1, 150) g")
    first = turn(db)
    eventually(lambda: db.value("SELECT count(fence) FROM outbox.segments WHERE turn = %s", [first]) == 1 and turn(db) > first, 30, "the ring turns")
    db.sql("SELECT outbox.add_event('key-' || g % 7, 'changed', g::text) FROM generate_series(151, 500) g")
    events = checker.committed(db)
    kafka.freeze()
    try:
        db.sql("SELECT outbox.resume('kafka')")
        eventually(lambda: db.value("SELECT state FROM outbox.lag") == "backing_off", 30, "an outage")
    finally:
        kafka.resume()
    nothing_pending(db)
    checker.check(events, kafka.consume(topic)).must_hold()


def test_a_sink_that_is_created_again_at_the_end_of_its_retention_has_everything_or_nothing(db, kafka, topic):
    """What is remembered of it is deleted as a whole, or not at all when somebody is just about to go on with it."""
    make_sink(db, kafka, kafka.create_topic(), name="keeper")
    make_sink(db, kafka, topic)
    db.sql("SELECT outbox.add_event('k', 'x', '1')")
    nothing_pending(db)
    db.sql("DROP SERVER kafka")
    with db.connect(autocommit=False) as c:
        c.execute(f"CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '{kafka.bootstrap}', topic '{topic}', format 'payload')")
        before = turn(db)

        def kept_house():
            db.sql("SELECT outbox.add_event('k', 'x', '2')")
            return turn(db) >= before + 2 or db.pg.backends("backend_type = 'outbox relay' AND wait_event_type = 'Lock'")
        eventually(kept_house, 40, "the keeper has kept house, or waits", interval=0.2)
        c.commit()
    assert db.value("SELECT count(*) FROM outbox.lanes JOIN outbox.sinks USING (sink_id) WHERE name = 'kafka'") == 1
    db.sql("SELECT outbox.add_event('k', 'x', '3')")
    got = [r.value for r in kafka.consume(topic, until=lambda got: got and got[-1].value == b"3")]
    assert got[0] == b"1" and set(got[1:-1]) == {b"2"}, got
