"""What an operator does with parked events, while the relay runs."""
import threading

import pytest
from harness.wait import eventually, never
from harness.workload import Threads, make_sink, nothing_pending


@pytest.fixture
def dead(db, mock):
    """One dead event of the key k with two behind it, and a relay that has looked at them and found nothing to do."""
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", stall_timeout="1s")
    db.sql("SELECT outbox.add_event('other', 'x', '0')")
    nothing_pending(db)
    mock.cmd("push_errors Produce MSG_SIZE_TOO_LARGE,MSG_SIZE_TOO_LARGE")  # for the request, and for the event alone
    event = db.value("SELECT outbox.add_event('k', 'x', '1')")
    eventually(lambda: db.sql("SELECT event_id, reason FROM outbox.parked") == [(event, "dead")], 20, "it is dead")
    looks = db.value("SELECT last_beat_at FROM outbox.live_relays()")
    eventually(lambda: (db.value("SELECT last_beat_at FROM outbox.live_relays()") - looks).total_seconds() > 2.5, 20, "more looks")
    return event


def test_a_redriven_event_is_sent_at_once(db, mock, dead):
    assert db.value("SELECT outbox.redrive('kafka')") == 1
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 3, "nothing parked")
    assert [r.value for r in mock.consume("t", until=2)] == [b"0", b"1"]


def test_what_waits_behind_an_event_goes_out_once_it_is_discarded(db, mock, dead):
    db.sql("SELECT outbox.add_event('k', 'x', '2')")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked WHERE reason = 'behind'") == 1, 20, "it waits")
    db.sql("SELECT outbox.discard('kafka', %s, 'too large for ever')", [dead])
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 5, "nothing parked")
    db.sql("SELECT outbox.add_event('k', 'x', '3')")
    assert [r.value for r in mock.consume("t", until=3)] == [b"0", b"2", b"3"]


@pytest.mark.parametrize("others", [0, 30_000])
def test_a_busy_key_becomes_free(db, mock, dead, others):
    """Events of it come all the time: those that came while others were on their way must not wait behind these, and others behind them.
    However many of other keys are parked, since what goes over all of them cannot be done each time."""
    db.sql("INSERT INTO outbox.parked_events (sink_id, id, event_id, aggregate_id, event_type, payload, created_at, destination, reason)"
           " SELECT sink_id, -g, gen_random_uuid(), 'dead' || g, 'x', '0', now(), 't', 'dead' FROM outbox.sinks, generate_series(1, %s) g", [others])
    threads, stop, written = Threads(), threading.Event(), []

    def write():
        with db.connect() as c:
            while not stop.is_set():
                written.append(str(len(written) + 2))
                c.execute("SELECT outbox.add_event('k', 'x', %s)", [written[-1]])
    threads.start(write)
    try:
        eventually(lambda: db.value("SELECT count(*) FROM outbox.parked WHERE reason = 'behind'") > 100, 20, "they wait")
        db.sql("SELECT outbox.discard('kafka', %s, 'a test')", [dead])
        eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == others, 10, "the key is free")
        never(lambda: db.value("SELECT count(*) FROM outbox.parked") > others, 0.5, "it stays free")
    finally:
        stop.set()
        threads.join()
    values = [r.value.decode() for r in mock.consume("t", until=len(written) + 1)]
    assert values == ["0", *written]
