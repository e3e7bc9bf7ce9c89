"""P9: a backlog of one key drains as fast as one of many."""

import contextlib

from ..contestants.event import KEYS
from ..contestants.outbox import Outbox
from ..report import Row, pairs
from ..stage import in_rounds

FIGURES = ("P9",)


def measure(stage, raw):
    events = stage.options.events
    with contextlib.ExitStack() as stack:
        contestants = {}
        for name, key in ("one hot key", "'key-1'"), ("many keys", f"'key-' || g %% {KEYS}"):
            outbox = Outbox(stage, stack.enter_context(stage.database(f"bench_keys_{name.split()[0]}")))
            outbox.fill(events, key)
            contestants[name] = lambda o=outbox: {"rate": o.drain(events).rate()}
        in_rounds(stage, "keys", contestants, raw.setdefault("rounds", []))


def rows(raw):
    return [Row("P9", "drain of one hot key : many keys", *pairs(raw["rounds"], "one hot key", "many keys", "rate"), "events/s", 0.9)]


def tables(raw):
    return []
