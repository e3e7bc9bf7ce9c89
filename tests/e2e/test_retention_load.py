"""Retention under load: the log's size levels off, nobody waits while segments turn, no event is lost."""
import re
import time

import pytest
from conftest import Database
from harness.factor import patience, scaled
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


@pytest.mark.long
@pytest.mark.timeout(900)
def test_three_million_expired_events_go_beside_live_ones(make_pg, kafka):
    """B74. Live events at 200 a second; the first try is called off in the middle, and the rest is done all the same."""
    db = Database(make_pg(conf={**PG_CONF, "outbox.retention": "1h"}), "postgres")
    db.sql("CREATE EXTENSION outbox")
    bulk, live = kafka.create_topic(), kafka.create_topic()
    make_sink(db, kafka, live)
    for part in range(3):
        db.sql("INSERT INTO outbox.events (aggregate_id, event_type, payload, topic) SELECT 'k' || g %% 1000, 'bulk', '1', %s FROM generate_series(1, 1000000) g", [bulk])
        nothing_pending(db, 300)
        # Old enough to be closed; the next million goes to another segment.
        db.sql("UPDATE outbox.segments SET opened_at = opened_at - interval '10 minutes'")
        assert db.value("SELECT turned FROM outbox.retention_run()"), part
    load, arrivals = Load(db, 200).start(), Arrivals(kafka, live)
    try:
        load.stopped.wait(10)
        before = db.pg.mark()
        expire = ("UPDATE outbox.segments SET closed_at = closed_at - interval '1 day'", "UPDATE outbox.progress SET recorded_at = recorded_at - interval '1 day'")
        with db.connect(autocommit=False) as c:
            for statement in expire:
                c.execute(statement)
            assert c.execute("SELECT truncated FROM outbox.retention_run()").fetchone()[0] == 3
            c.rollback()
        assert truncated(db) == 0 and db.value("SELECT count(*) FROM outbox.events") >= 3_000_000
        lsn, begin = db.value("SELECT pg_current_wal_insert_lsn()"), time.time()
        for statement in expire:
            db.sql(statement)
        eventually(lambda: truncated(db) >= 3, patience(60), "all three are gone", interval=0.2)
        seconds, wal = time.time() - begin, db.value("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", [lsn])
        load.stopped.wait(5)
        relays = {pid for pid, in db.sql("SELECT pid FROM outbox.relays WHERE pid IS NOT NULL")}
    finally:
        load.stop()
    nothing_pending(db, 60)
    eventually(lambda: len(arrivals.at) >= len(load.committed), 60, "every event came")
    report = load.report(arrivals)
    arrivals.close()
    show(load, report)
    print(f"three million gone {seconds:.1f} s after they expired, {int(wal) / seconds / 1e6:.2f} MB of WAL a second")
    assert all(p99 < 1000 for _, p99, _ in report.values()), report
    waited = [line for line in db.pg.log_since(before).splitlines() if (m := WAIT.search(line)) and int(m[1]) in load.pids | relays]
    assert not waited, waited[:5]
