"""A replay is held between the broker's acknowledgements and its own record, and something happens there."""
import pytest
from harness.wait import eventually
from harness.workload import Killer, make_sink, nothing_pending

from test_crash_points import no_fault, set_fault, without_fault  # noqa: F401  a fixture
from test_replay import PIDS, ended, parts, published, replay, write

PG_FLAVOUR = "faults"
PG_CONF = {"outbox.replay_rate": 400}  # so that a slice has a hundred events
SLICE, EVENTS = 100, 250


@pytest.mark.parametrize("kill, copies", [("terminate", 0), ("crash", SLICE), ("immediate_stop", SLICE)])
def test_a_replay_that_is_killed_goes_on_where_it_was_and_repeats_one_slice_at_most(db, kafka, topic, rng, no_fault, kill, copies):  # noqa: F811
    make_sink(db, kafka, topic)
    write(db, EVENTS)
    nothing_pending(db)
    set_fault(db.pg, "after_replayed_slice")
    number = replay(db, None)
    kafka.consume(topic, until=EVENTS + SLICE)
    (pid,), = eventually(lambda: db.sql(PIDS), 20, "it is held")
    assert db.value("SELECT sent FROM outbox.replays") == 0
    if kill == "terminate":
        db.sql("SELECT pg_terminate_backend(%s)", [pid])
    elif kill == "crash":
        Killer(db, rng).crash(pid)
    else:
        Killer(db, rng).immediate_stop()
    without_fault(db, "SELECT finished_at IS NOT NULL FROM outbox.replays")
    assert ended(db, number) == (EVENTS, 0, None)
    again = [r.header("event_id") for r in parts(kafka.consume(topic, until=2 * EVENTS + copies))[1]]
    events = published(db)
    assert again == events[:copies] + events
