"""Parked events beside live ones: a topic that takes nothing costs the others next to nothing, an outage is no attempt, many rows
are no burden."""
import time

import pytest
from harness import checker
from harness.factor import scaled
from harness.wait import eventually, never
from harness.workload import make_sink, nothing_pending


def parked(db, where="true"):
    return db.value(f"SELECT count(*) FROM outbox.parked WHERE {where}")


@pytest.mark.parametrize("trouble", ["missing", "not_enough_replicas"])
def test_a_steady_stream_to_a_topic_that_takes_nothing_delays_no_other(db, kafka, topic, trouble, mock):
    """B20. Each event of the healthy topic is timed while five others a turn go to the bad one, more keys with each turn."""
    if trouble == "missing":
        broker, bad = kafka, f"{topic}-bad"
    else:
        broker, topic, bad = mock, "good", "bad"
        mock.cmd("topic good 1")
        mock.cmd("topic bad 1")
        mock.cmd("topic_error bad NOT_ENOUGH_REPLICAS")
    make_sink(db, broker, topic)
    db.sql("SELECT outbox.add_event('healthy', 'x', '0')")
    nothing_pending(db)
    slow, turns, number = [], 0, 0
    with db.connect() as c:
        while turns < 2 or time.monotonic() - begin < scaled(6.0):
            turns += 1
            if turns == 2:  # the first has met the bad topic
                begin = time.monotonic()
            for _ in range(5):
                number += 1
                c.execute("SELECT outbox.add_event('k' || %s %% 40, 'x', %s::text, topic => %s)", [number, str(number), bad])
            c.execute("SELECT outbox.add_event('healthy', 'x', %s::text)", [str(turns)])
            wrote = time.monotonic()
            eventually(lambda: c.execute("SELECT count(*) FROM outbox.pending WHERE aggregate_id = 'healthy'").fetchone() == (0,), 20,
                       interval=0.02)
            slow.append(time.monotonic() - wrote)
            time.sleep(0.02)  # a writer's own pace
    slow.sort()
    print(f"{trouble}: {turns} turns, median {slow[len(slow) // 2]:.3f} s, slowest {slow[-3:]}")
    # The first meeting with the topic and a test of it now and then take their time; a batch does not.
    assert slow[-2] < 5 and slow[len(slow) // 2] < 1
    assert turns > 8, "each batch waited for the topic"
    if trouble == "missing":
        kafka.create_topic(bad)
    else:
        mock.cmd("topic_error bad 0")
    eventually(lambda: parked(db) == 0, 60, "the events have gone out")
    records = broker.consume(bad, until=number)
    for key in {r.key for r in records}:
        values = [int(r.value) for r in records if r.key == key]
        assert values == sorted(values), key
    assert len(records) == number
    db.sql("SELECT outbox.add_event('k1', 'x', '-1', topic => %s)", [bad])
    nothing_pending(db)
    eventually(lambda: parked(db) == 0, 10, "nothing is parked any more")


def test_an_outage_is_no_attempt_for_events_that_are_parked(db, mock):
    """B26. They wait for a topic that is not there when the broker goes away for longer than some attempts would take."""
    mock.cmd("topic t 1")
    mock.cmd("topic_error late UNKNOWN_TOPIC_OR_PART")
    make_sink(db, mock, "t", stall_timeout="1s")
    db.sql("SELECT outbox.add_event('k' || g, 'x', g::text, topic => 'late') FROM generate_series(1, 20) g")
    eventually(lambda: parked(db, "reason = 'retry'") == 20, 20, "they are parked")
    mock.cmd("down 1")
    eventually(lambda: "refused" in (db.value("SELECT last_error FROM outbox.lag") or ""), 30, "the outage is seen")
    before = db.sql("SELECT id, attempts FROM outbox.parked ORDER BY id")
    never(lambda: db.sql("SELECT id, attempts FROM outbox.parked ORDER BY id") != before or parked(db, "reason <> 'retry'"), scaled(4.0),
          "an attempt was counted", interval=0.2)
    mock.cmd("up 1")
    mock.cmd("topic_error late 0")
    eventually(lambda: parked(db) == 0, 90, "they have gone out")
    assert len(mock.consume("late", until=20)) == 20
    eventually(lambda: db.value("SELECT last_error FROM outbox.lag") is None, 10, "no error is left")


def test_a_topic_that_is_stuck_after_an_outage_holds_nobody_up(db, mock):
    """Its event is the first after the outage, and so the one that the relay tries the sink with."""
    mock.cmd("topic bad 1")
    mock.cmd("topic good 1")
    make_sink(db, mock, "good", stall_timeout="1s", delivery_timeout="4s")
    db.sql("SELECT outbox.add_event('k', 'x', '0')")
    nothing_pending(db)
    mock.cmd("down 1")
    db.sql("SELECT outbox.add_event('b', 'x', '1', topic => 'bad')")
    db.sql("SELECT outbox.add_event('k', 'x', '2')")
    eventually(lambda: db.value("SELECT state FROM outbox.lag") == "backing_off", 20, "an outage")
    mock.cmd("topic_error bad NOT_ENOUGH_REPLICAS")
    mock.cmd("up 1")
    assert [r.value for r in mock.consume("good", until=2)] == [b"0", b"2"]
    eventually(lambda: db.sql("SELECT topic, reason FROM outbox.parked") == [("bad", "retry")], 20, "it is parked")
    mock.cmd("topic_error bad 0")
    assert [r.value for r in mock.consume("bad", until=1)] == [b"1"]
