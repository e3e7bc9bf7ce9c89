"""What an operator does with parked events, while the relay runs."""
import pytest
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending


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
