"""Retention under load: the log's size levels off, nobody waits while segments turn, no event is lost."""
import re

import pytest
from conftest import Database
from harness.factor import scaled
from harness.steady import Arrivals, Load
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending

# Whoever waits for a lock for more than 50 ms is in the server's log.
PG_CONF = {"outbox.retention": "1s", "log_lock_waits": "on", "deadlock_timeout": "50ms", "max_wal_size": "4GB"}
WAIT = re.compile(r"LOG:  process (\d+) still waiting for \w+ on relation")


def run(db, kafka, rate, seconds, until=lambda: True, down_for=0):
    """Events for a sink, and for a second one that cannot be reached for the first `down_for` seconds. Returns the load, its report, and
    what was said of the segments when the second one came back."""
    topics = [kafka.create_topic(), kafka.create_topic()]
    make_sink(db, kafka, topics[0])
    if down_for:
        make_sink(db, kafka, topics[1], name="second", bootstrap_servers="127.0.0.1:1")
    arrivals = [Arrivals(kafka, t) for t in topics]
    before, said = db.pg.mark(), None
    load = Load(db, rate).start()
    try:
        if down_for:
            load.stopped.wait(down_for)
            said = eventually(lambda: (d := db.value("SELECT detail FROM outbox.health WHERE \"check\" = 'segments'")) and 'sink "second"' in d and d,
                              60, "the health check names it")
            db.sql(f"ALTER SERVER second OPTIONS (SET bootstrap_servers '{kafka.bootstrap}')")
        load.stopped.wait(seconds - down_for)
        eventually(until, 120, "long enough", interval=0.2)
        relays = {pid for pid, in db.sql("SELECT pid FROM outbox.relays WHERE pid IS NOT NULL")}
    finally:
        load.stop()
    nothing_pending(db, 120)
    for a in arrivals[:2 if down_for else 1]:
        eventually(lambda a=a: len(a.at) >= len(load.committed), 60, "every event came")
        assert a.at.keys() == load.committed.keys() and a.times == len(a.at)
    report = load.report(arrivals[0])
    for a in arrivals:
        a.close()
    waited = [line for line in db.pg.log_since(before).splitlines() if (m := WAIT.search(line)) and int(m[1]) in load.pids | relays]
    assert not waited, waited[:5]
    return load, report, said


def truncated(db):
    return db.value("SELECT count(*) FROM outbox.segments WHERE truncated_at IS NOT NULL")


def show(load, report):
    step = max(1, len(load.sizes) // 20)
    print("size: " + ", ".join(f"{int(at)} s {size / 1e6:.1f} MB in {segments}" for at, size, segments in load.sizes[::step]))
    for who, (p50, p99, n) in report.items():
        print(f"{who}: p50 {p50} ms, p99 {p99} ms of {n}")


def test_under_constant_load_old_segments_go_and_no_event_is_lost(db, kafka):
    """B74, B75. In short; at length below."""
    load, report, _ = run(db, kafka, 300, scaled(8.0), until=lambda: truncated(db) >= 2)
    show(load, report)
    assert db.value("SELECT count(*) FROM outbox.events") < len(load.committed)


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("down_for", [0, 300])
def test_ten_minutes_at_2000_events_a_second_with_30_seconds_of_retention(make_pg, kafka, down_for):
    """B75. A segment spans five seconds here, and a relay looks every five: what is kept is at most 30 + 5 + 5 s, and a minute's thinning
    of the progress rows is no matter at this rate, since every batch of the last two minutes is there."""
    db = Database(make_pg(conf={**PG_CONF, "outbox.retention": "30s"}), "postgres")
    db.sql("CREATE EXTENSION outbox")
    load, report, said = run(db, kafka, 2000, 600, down_for=down_for)
    show(load, report)
    print(f"events {len(load.committed)}, truncated {truncated(db)} segments, said {said}")
    settled = [size for at, size, _ in load.sizes if at > (down_for + 120 if down_for else 60)]
    assert max(settled) < 1.5 * min(settled) + 5e6, "the size levels off"
    bytes_each = 2000 * 60 * 400  # an event of a few bytes takes some 300 with its indexes
    assert max(settled) < bytes_each, f"{max(settled)} bytes"
