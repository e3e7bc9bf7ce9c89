"""A backlog does not go through the relay's memory at once."""
import contextlib
import threading
from pathlib import Path

import pytest
from harness import env
from harness.factor import scaled
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending, relays

MB = 1024 * 1024
# What a relay may need beyond what it has when it idles: a batch's rows as they are read (16 MB), the copy that librdkafka
# keeps until they are acknowledged (16 MB), its requests on their way, and what the allocators do not give back.
BOUND = 64 * MB


def anonymous(pid):
    """The memory of its own: neither shared buffers nor files."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no line Anonymous in smaps_rollup")


class Peak:
    """The most that a process had at once, while this is entered."""

    def __init__(self, pid):
        self.pid, self.most, self.over = pid, anonymous(pid), threading.Event()

    def __enter__(self):
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def watch(self):
        while not self.over.wait(0.01) and env.alive(self.pid):
            self.most = max(self.most, anonymous(self.pid))

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def backlog(db, events, size):
    """Compressible, so that it is quickly written; it is as large as any other where it is read."""
    (db.sql if hasattr(db, "sql") else db.execute)("""INSERT INTO outbox.events (aggregate_id, event_type, payload)
              SELECT 'key-' || g %% 100, 'large', to_json(repeat('x', %s)) FROM generate_series(1, %s) g""", [size, events])


@contextlib.contextmanager
def bounded(db):
    """Whatever is published in here does not take the relay past the bound."""
    db.sql("SELECT outbox.add_event('k', 'small', '1')")
    nothing_pending(db)
    pid = relays(db)[0]
    before = anonymous(pid)
    with Peak(pid) as peak:
        yield
    used = peak.most - before
    print(f"{before / MB:.1f} MB idle, {used / MB:.1f} MB more at most, {(anonymous(pid) - before) / MB:.1f} MB more afterwards")
    assert relays(db) == [pid]
    assert used < BOUND, f"{used / MB:.0f} MB"


LARGEST = 890_000


@pytest.mark.parametrize("events, size", [(20_000, 10_000), (250, LARGEST)])
def test_a_backlog_of_large_events_stays_within_the_bound(db, kafka, topic, events, size):
    """B70."""
    assert BOUND < min(events, 10_000) * size  # what a reader without a bound would hold
    make_sink(db, kafka, topic)
    with bounded(db):
        backlog(db, scaled(events), size)
        nothing_pending(db, scaled(120.0))
    assert sum(kafka.end_offsets(topic).values()) == scaled(events) + 1


def test_large_events_that_commit_late_stay_within_it_too(db, kafka, topic):
    make_sink(db, kafka, topic)
    with bounded(db), db.connect(autocommit=False) as late:
        backlog(late, 200, LARGEST)
        db.sql("SELECT outbox.add_event('k', 'small', '2')")
        kafka.consume(topic, until=2)
        late.commit()
        nothing_pending(db)
    assert sum(kafka.end_offsets(topic).values()) == 202


def test_large_events_that_were_parked_stay_within_it_too(db, kafka, topic):
    make_sink(db, kafka, topic + "-{event_type}")
    kafka.create_topic(f"{topic}-small")
    with bounded(db):
        backlog(db, 80, LARGEST)
        eventually(lambda: db.value("SELECT parked FROM outbox.lag") == 80, 60, "every event is parked")
        kafka.create_topic(f"{topic}-large")
        eventually(lambda: db.value("SELECT parked FROM outbox.lag") == 0, 60, "every event is published after all")
    assert sum(kafka.end_offsets(f"{topic}-large").values()) == 80


def test_an_outage_with_a_backlog_takes_no_more_either(db, mock):
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", delivery_timeout="1s")

    def down():
        eventually(lambda: db.value("SELECT state FROM outbox.lag") == "backing_off", 20, "an outage")
    with bounded(db):
        mock.cmd("down -1")
        backlog(db, 5000, 10_000)
        down()
        # Each attempt has a producer of its own.
        for _ in range(scaled(3)):
            db.sql("ALTER SERVER kafka OPTIONS (SET delivery_timeout '1s')")
            down()
        mock.cmd("up -1")
        nothing_pending(db)


def test_events_that_are_not_the_sink_s_stay_within_it_too(db, kafka, topic):
    """A relay reads the log in order: those of other sinks and lanes go past it."""
    make_sink(db, kafka, topic, events="*/small")
    with bounded(db):
        backlog(db, 20_000, 10_000)
        db.sql("SELECT outbox.add_event('k', 'small', '2')")
        kafka.consume(topic, until=2, timeout=60)
