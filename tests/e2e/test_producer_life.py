"""A producer that fails is replaced, and a cluster that changes is followed, without anybody's help."""
import threading
import time
from pathlib import Path

import pytest
from harness import checker
from harness.factor import scaled
from harness.mock import Mock
from harness.wait import eventually, never
from harness.workload import make_sink, nothing_pending, relays

PG_FLAVOUR = "faults"


def write(db, events, keys=7):
    db.sql("SELECT outbox.add_event('k' || g %% %s, 'x', g::text) FROM generate_series(1, %s) g", [keys, events])


def nothing_parked(db):
    assert db.value("SELECT count(*) FROM outbox.parked") == 0


def all_there(db, cluster, topic, repeats):
    events = checker.committed(db)
    return checker.check(events, cluster.consume(topic, until=checker.has_all(events))).must_hold(repeats=repeats)


def new_producers(db, mark):
    return db.pg.log_since(mark).count("makes a new producer")


@pytest.fixture(params=["fatal_producer", "fatal_while_sending"])
def fatal_producers(pg, request):
    """Each batch meets a fatal error of its producer when all of it is sent, or half of it."""
    def switch(name):
        pg.configure(outbox__fault=name)
        pg.reload()
        eventually(lambda: pg.value("SELECT current_setting('outbox.fault')") == name, 10, "the setting")
    switch(request.param)
    yield
    switch("")


def test_a_fatal_producer_is_replaced_and_all_events_arrive(db, kafka, topic, fatal_producers):
    """B23. What was on its way when the producer failed may be there twice; nothing is lost, nothing reordered."""
    mark = db.pg.mark()
    make_sink(db, kafka, topic, batch_size=250)
    write(db, 1000)
    nothing_pending(db)
    all_there(db, kafka, topic, repeats=1000)
    nothing_parked(db)
    assert new_producers(db, mark) == 1, "one line a minute"


@pytest.mark.parametrize("error", ["OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH"])
def test_a_lost_sequence_or_epoch_makes_a_new_producer(db, mock, error):
    """B23, among a thousand events."""
    mock.cmd("topic t 1")
    mark = db.pg.mark()
    mock.cmd(f"push_errors Produce 0,0,{error}")
    make_sink(db, mock, "t", batch_num_messages=50)
    write(db, 1000)
    nothing_pending(db)
    events = checker.committed(db)
    assert {e.event_id for e in events} == {checker.event_id(r) for r in mock.consume("t", until=checker.has_all(events))}
    nothing_parked(db)
    assert new_producers(db, mark) == 1
    assert db.value("SELECT sum(published) FROM outbox.relays") == 1000


def test_an_acknowledgement_that_comes_too_late_is_nobodys(db, mock):
    """The broker stores a batch and says so when the relay has long given up and sent others."""
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", delivery_timeout="1s", batch_size=10)
    write(db, 1)
    nothing_pending(db)
    mock.cmd("push_error_rtts 1 Produce 0:3000")
    write(db, 100)
    nothing_pending(db)
    events = checker.committed(db)
    records = mock.consume("t", until=checker.has_all(events))
    checker.check(events, records, ordered=False).must_hold(repeats=10)
    nothing_parked(db)
    assert db.value("SELECT sum(published) FROM outbox.relays") == 101


@pytest.mark.parametrize("down_first", [False, True], ids=["broker_up", "broker_down_first"])
def test_a_full_queue_is_back_pressure(db, mock, down_first):
    """B21."""
    mock.cmd("topic t 1")
    write(db, 5000)
    mark = db.pg.mark()
    if down_first:
        mock.cmd("down 1")
    make_sink(db, mock, "t", queue_buffering_max_messages=10, batch_size=500, linger_ms=0, delivery_timeout="1s")
    if down_first:
        eventually(lambda: db.value("SELECT state FROM outbox.lag") == "backing_off", 20, "an outage")
        mock.cmd("up 1")
    nothing_pending(db)
    all_there(db, mock, "t", repeats=500 if down_first else 0)
    nothing_parked(db)
    assert " ERROR: " not in db.pg.log_since(mark)


def test_what_a_broker_wants_repeated_is_no_attempt(db, mock):
    """B25."""
    mock.cmd("topic t 1")
    mark = db.pg.mark()
    mock.cmd("push_errors Produce " + ",".join(["NOT_ENOUGH_REPLICAS"] * 5 + ["LEADER_NOT_AVAILABLE"] * 5 + ["REQUEST_TIMED_OUT"] * 3))
    make_sink(db, mock, "t", retry_backoff_ms=20)
    write(db, 10, keys=1)
    nothing_pending(db)
    assert [r.value for r in mock.consume("t")] == [str(n).encode() for n in range(1, 11)]
    nothing_parked(db)
    assert "parked" not in db.pg.log_since(mark)




def test_a_topic_that_is_unknown_for_a_while_is_an_outage(db, mock):
    """B27. It worked before; brokers that have just started do not know it yet."""
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", delivery_timeout="2s")
    write(db, 10)
    nothing_pending(db)
    mock.cmd("topic_error t UNKNOWN_TOPIC_OR_PART")
    mock.cmd("push_errors Produce " + ",".join(["UNKNOWN_TOPIC_OR_PART"] * 1000))
    write(db, 200)
    eventually(lambda: "does not exist" in (db.value("SELECT last_error FROM outbox.lag") or ""), 30, "the reason")
    never(lambda: db.sql("SELECT parked + dead FROM outbox.lag") != [(0,)], scaled(3.0), "events are parked", interval=0.1)
    mock.cmd("topic_error t 0")
    mock.cmd("clear_errors Produce")
    nothing_pending(db)
    all_there(db, mock, "t", repeats=None)
    nothing_parked(db)


@pytest.mark.parametrize("partitions", [1, 8])
def test_a_topic_that_is_deleted_and_made_again_is_followed(db, kafka, partitions):
    """B29, while events flow. What it had is gone with it; what is written afterwards is all there, in order."""
    topic = kafka.create_topic(partitions=4)
    make_sink(db, kafka, topic, delivery_timeout="2s")
    stop = threading.Event()

    def flow():
        with db.connect() as c:
            while not stop.is_set():
                c.execute("SELECT outbox.add_event('k' || g % 7, 'x', '0') FROM generate_series(1, 20) g")
                time.sleep(0.02)
    writer = threading.Thread(target=flow)
    writer.start()
    try:
        kafka.consume(topic, until=100)
        kafka.delete_topic(topic)
        kafka.create_topic(topic, partitions=partitions)
        after = db.value("SELECT max(id) FROM outbox.events")
        kafka.consume(topic, until=100)
    finally:
        stop.set()
        writer.join()
    nothing_pending(db)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 60, "nothing parked")
    records = kafka.consume(topic)
    written = [e for e in checker.committed(db, f"id > {after}")]
    there = {checker.event_id(r) for r in records}
    assert not [e for e in written if e.event_id not in there]
    verdict = checker.check(checker.committed(db, f"event_id::text = ANY ('{{{','.join(there)}}}')"), records)
    if partitions > 1:
        # A key is in another partition than before; a moment passes until the producer knows how many there are.
        verdict.disordered = [d for d in verdict.disordered if d[0] not in verdict.scattered]
        verdict.scattered = []
    verdict.must_hold()


def test_partitions_that_are_added_are_used(db, kafka):
    topic = kafka.create_topic(partitions=1)
    make_sink(db, kafka, topic, **{"topic_metadata_refresh_interval_ms": 500})
    write(db, 10)
    nothing_pending(db)
    kafka.add_partitions(topic, 4)

    def spread():
        write(db, 50, keys=50)
        nothing_pending(db)
        return len({r.partition for r in kafka.consume(topic)}) == 4
    eventually(spread, 30, "all partitions are used", interval=0.3)
    nothing_parked(db)


def test_an_address_that_changed_is_followed_by_alter_server(db, mock):
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", delivery_timeout="1s")
    write(db, 10)
    nothing_pending(db)
    mock.kill()
    write(db, 10)
    eventually(lambda: db.value("SELECT state FROM outbox.lag") == "backing_off", 20, "an outage")
    with Mock() as other:
        other.start()
        other.cmd("topic t 1")
        db.sql(f"ALTER SERVER kafka OPTIONS (SET bootstrap_servers '{other.bootstrap}')")
        nothing_pending(db, 20)
        assert len(other.consume("t")) == 10
        nothing_parked(db)
        assert db.value("SELECT last_error FROM outbox.lag") is None
        db.sql("SELECT outbox.pause('kafka')")


def resident(pid):
    return int(next(line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")))


def test_a_broker_that_comes_and_goes_leaves_the_relay_as_it_was(db, mock):
    """B33, with statistics on. The server stays up (the fixture looks), the same process goes on, its memory does not grow."""
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", statistics_interval_ms=100, delivery_timeout="1s", reconnect_backoff_ms=10, reconnect_backoff_max_ms=20)
    mark = db.pg.mark()
    pid, memory = None, None
    cycles = scaled(25)
    for number in range(cycles):
        write(db, 20)
        mock.cmd("down 1")
        write(db, 20)
        mock.cmd("up 1")
        nothing_pending(db)
        if number == cycles // 3:
            [pid] = relays(db)
            memory = resident(pid)
    assert relays(db) == [pid]
    grown = resident(pid) - memory
    print(f"{cycles} cycles, {memory} kB, grown by {grown} kB")
    assert grown < 8192
    nothing_parked(db)
    lines = [line for line in db.pg.log_since(mark).splitlines() if "outbox relay" in line]
    assert len(lines) <= 2 * cycles + 5, "\n".join(lines[:20])
