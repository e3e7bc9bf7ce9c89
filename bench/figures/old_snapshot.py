"""P5: a drain while another session holds a snapshot from before; the rate by tenths."""

import contextlib

from ..contestants.by_hand import ByHand
from ..contestants.outbox import Outbox
from ..report import Row, pairs
from ..stage import in_rounds

FIGURES = ("P5",)


@contextlib.contextmanager
def old_snapshot(db):
    with db.connect(autocommit=False) as c:
        c.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        c.execute("SELECT pg_current_xact_id()")
        yield


def turn(contestant, events):
    tenths = contestant.drain(events).tenths()
    return {"first": tenths[0], "last": tenths[-1], "tenths": tenths}


def measure(stage, raw):
    events = stage.options.events
    with contextlib.ExitStack() as stack:
        contestants = {}
        db = stack.enter_context(stage.database("bench_snapshot"))
        stack.enter_context(old_snapshot(db))
        outbox = Outbox(stage, db)
        outbox.fill(events)
        contestants[outbox.name] = lambda: turn(outbox, events)
        if stage.wants("tuned"):
            hand = ByHand(stage, stack.enter_context(stage.database("bench_snapshot_tuned", extension=False)), "tuned")
            stack.enter_context(old_snapshot(hand.db))
            contestants[hand.name] = lambda: turn(hand, events)
        in_rounds(stage, "old snapshot", contestants, raw.setdefault("rounds", []))


def rows(raw):
    last, _ = pairs(raw["rounds"], "outbox", "outbox", "last")
    first, _ = pairs(raw["rounds"], "outbox", "outbox", "first")
    return [Row("P5", "drain under an old snapshot, last tenth : first tenth", last, first, "events/s", 0.9)]


def tables(raw):
    return [("Drain under an old snapshot, events/s", raw["rounds"], {"first": "first tenth", "last": "last tenth"})]
