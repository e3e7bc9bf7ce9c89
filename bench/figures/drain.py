"""P1, P2, P8: how fast a backlog goes to Kafka, and what an event costs the process that sends it."""

import contextlib

from ..contestants.bare import LINGERS, Bare
from ..contestants.by_hand import ByHand
from ..contestants.debezium import Debezium
from ..contestants.outbox import Outbox
from ..report import Row, best, pairs
from ..stage import Failed, in_rounds, say

FIGURES = ("P1", "P2", "P8")


def turn(contestant, events, cpu=True):
    drain = contestant.drain(events)
    own, library = drain.cpu_per_event() if cpu else (None, None)
    figures = {"rate": drain.rate(), "own": own, "library": library, "cpu": own + library} if cpu else {"rate": drain.rate()}
    return figures | {"times": drain.times[::5], "events": drain.events[::5]}


def measure(stage, raw):
    events = stage.options.events
    with contextlib.ExitStack() as stack:
        contestants = {}
        if stage.wants("bare"):
            contestants |= {c.name: (lambda c=c: turn(c, events)) for c in (Bare(stage, linger) for linger in LINGERS)}
        if stage.wants("outbox"):
            db = stack.enter_context(stage.database("bench_drain"))
            lanes = [Outbox(stage, db, n) for n in (1, 2, 4)]
            lanes[0].fill(events)
            contestants |= {c.name: (lambda c=c: turn(c, events, c.lanes == 1)) for c in lanes}
        for kind in ("taught", "tuned"):
            if stage.wants(kind):
                hand = ByHand(stage, stack.enter_context(stage.database(f"bench_{kind}", extension=False)), kind)
                contestants[hand.name] = lambda c=hand: turn(c, events)
        if stage.wants("debezium"):
            try:
                debezium = Debezium(stage, stack.enter_context(stage.database("bench_debezium", extension=False)))
                contestants[debezium.name] = lambda: turn(debezium, events)
            except Failed as e:
                say(f"without Debezium: {e}")
        in_rounds(stage, "drain", contestants, raw.setdefault("rounds", []))


def limit(rounds):
    return best(rounds, [f"bare librdkafka, linger.ms {n}" for n in LINGERS], "rate")


def rows(raw):
    rounds = raw["rounds"]
    bare = limit(rounds)
    out = [Row("P1", f"drain, one lane : {bare}", *pairs(rounds, "outbox", bare, "rate"), "events/s", 0.6)]
    for other, aim in ("by hand, as taught", 20), ("by hand, tuned", 6), ("Debezium", 6):
        out.append(Row("P2", f"drain, one lane : {other}", *pairs(rounds, "outbox", other, "rate"), "events/s", aim))
    for lanes in 2, 4:
        out.append(Row("P1", f"drain, {lanes} lanes : {bare}", *pairs(rounds, f"outbox, {lanes} lanes", bare, "rate"), "events/s"))
    out.append(Row("P8", f"CPU per event of the sending process : {bare}", *pairs(rounds, "outbox", bare, "cpu"), "us", 2, at_most=True))
    return out


def tables(raw):
    return [("Drain of a backlog", raw["rounds"], {"rate": "events/s", "cpu": "us of CPU per event", "own": "its first thread", "library": "the others"})]
