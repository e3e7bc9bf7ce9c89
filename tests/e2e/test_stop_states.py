"""A fast stop takes less than three seconds whatever a relay is at, and DROP DATABASE of another database less than five. Where the broker does not answer: test_planned_stop.py."""
import contextlib
import time

import pytest
from harness.factor import scaled
from harness.wait import eventually
from harness.workload import GONE, drops_another, make_sink, nothing_pending, relays

LONGEST = 3.0
PG_CONF = {"max_wal_size": "4GB"}


def write(db, events, topic=None):
    db.sql("INSERT INTO outbox.events (aggregate_id, event_type, payload, topic)"
           " SELECT 'key-' || g %% 20, 'written', json_build_object('row', g), %s FROM generate_series(1, %s) g", [topic, events])


def stops_fast(pg, moment=0.0, checkpoint=True):
    """A stop `moment` seconds from now, and a start. What a stop has to do on disk is not what is measured."""
    if checkpoint:
        pg.sql("CHECKPOINT")
    time.sleep(moment)
    took = pg.stop("fast")
    pg.start()
    assert took < LONGEST, f"the stop took {took:.2f} s"


def test_while_relays_start(db, kafka, topic, rng):
    make_sink(db, kafka, topic, lanes=4)
    write(db, 100)
    for _ in range(scaled(2)):
        stops_fast(db.pg, rng.random() * 0.3, checkpoint=False)  # after a start, since the last one
    drops_another(db.pg)
    nothing_pending(db)


def test_while_relays_have_nothing_to_do(db, kafka, topic, rng):
    make_sink(db, kafka, topic)
    for _ in range(scaled(1)):
        eventually(lambda: db.value("SELECT state FROM outbox.lag") == "idle", 20, "an idle relay")
        drops_another(db.pg)
        stops_fast(db.pg, rng.random())


def test_while_relays_read_produce_and_record(db, kafka, topic, rng):
    """A backlog that takes a while; the moment is by chance."""
    make_sink(db, kafka, topic, lanes=2)
    for number in range(scaled(3) + 1):
        write(db, 100_000)
        eventually(lambda: db.value("SELECT state FROM outbox.lag") == "running", 20, "relays at work", interval=0.005)
        if number == 0:
            drops_another(db.pg)
            continue
        stops_fast(db.pg, rng.random() * 0.3)
    nothing_pending(db)
    assert sum(kafka.end_offsets(topic).values()) == (scaled(3) + 1) * 100_000, "a planned stop repeats nothing"


@pytest.mark.parametrize("table", ["events", "progress", "lanes"])
def test_while_somebody_holds_a_lock_that_the_relay_needs(db, kafka, topic, table):
    make_sink(db, kafka, topic)
    write(db, 1)
    nothing_pending(db)
    for _ in range(scaled(1)):
        pid, = eventually(lambda: relays(db), 30, "a relay")
        with contextlib.suppress(GONE), db.connect(autocommit=False) as c:
            c.execute(f"LOCK TABLE outbox.{table} IN ACCESS EXCLUSIVE MODE")
            if table != "events":
                write(db, 100)
            eventually(lambda: db.pg.backends("pid = %s AND wait_event_type = 'Lock'", [pid]), 20, "it waits for the lock")
            drops_another(db.pg)
            stops_fast(db.pg, checkpoint=False)
    nothing_pending(db)


@pytest.mark.parametrize("lock", ["progress IN SHARE MODE", "parked_events"])
def test_a_relay_whose_record_somebody_locks_out_sends_nothing_and_can_be_terminated(db, mock, lock):
    mock.cmd("topic t 1")
    make_sink(db, mock, "t")
    write(db, 1)
    nothing_pending(db)
    pid, = relays(db)
    with db.connect(autocommit=False) as c:
        c.execute(f"LOCK TABLE outbox.{lock}")
        mock.cmd("push_errors Produce MSG_SIZE_TOO_LARGE,MSG_SIZE_TOO_LARGE")
        write(db, 1)
        eventually(lambda: db.pg.backends("pid = %s AND wait_event_type = 'Lock'", [pid]), 20, "it waits for the lock")
        db.sql("SELECT pg_terminate_backend(%s)", [pid])
        eventually(lambda: pid not in relays(db), LONGEST, "it is gone")
        assert len(mock.consume("t")) == 1
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 1, 20, "the relay after it goes on")


def test_while_parked_events_are_sent(db, mock, rng):
    mock.cmd("topic good 1")
    mock.cmd("topic stuck 1")
    mock.cmd("topic_error stuck NOT_ENOUGH_REPLICAS")
    make_sink(db, mock, "good", stall_timeout="1s")
    write(db, 100, topic="stuck")
    write(db, 100)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 100, 30, "they are parked")
    for _ in range(scaled(2)):
        eventually(lambda: db.value("SELECT count(*) FROM outbox.parked WHERE next_attempt_at < clock_timestamp() + interval '0.2 s'") > 0,
                   60, "one is due")
        drops_another(db.pg)
        stops_fast(db.pg, rng.random())
    mock.cmd("topic_error stuck 0")
    db.sql("SELECT outbox.redrive('kafka')")  # none is dead; but the topic is looked at anew
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 60, "they are sent")


def test_while_no_worker_slot_is_free(make_pg, kafka, topic):
    pg = make_pg(conf={"max_worker_processes": 2, "max_parallel_workers": 0})  # logical replication launcher, our launcher
    pg.sql("CREATE EXTENSION outbox")
    make_sink(pg, kafka, topic)
    for _ in range(scaled(1)):
        eventually(lambda: pg.value("SELECT state FROM outbox.lag") == "no_worker", 20, "it is known")
        drops_another(pg)
        stops_fast(pg)
