"""P11: eight clients write flat out, one event a commit, while a relay follows; and how far it is behind meanwhile."""

import contextlib
import threading
import time

import psycopg

from ..contestants import by_hand
from ..contestants.outbox import Outbox
from ..meter import Level
from ..report import Row, pairs
from ..stage import Failed, in_rounds
from .writers import EVENT, pgbench, script

FIGURES = ("P11",)
CLIENTS = 8
# As it is, where the disk decides how fast they are, and so that it does not.
CASES = {"flat out": {}, "flat out, asynchronous commit": {"PGOPTIONS": "-c synchronous_commit=off"}}
SEQUENCE = {"outbox": "outbox.events_id_seq", "taught": "taught_id_seq", "tuned": "tuned_id_seq"}


class Lag:
    """How many events are written and not on the topic yet, twice a second, on a thread of its own."""

    def __init__(self, stage, db, topic, kind):
        self.stage, self.db, self.topic, self.kind = stage, db, topic, kind
        self.times, self.pending = [], []
        self._ended = threading.Event()

    def _look(self):
        with contextlib.suppress(Failed, psycopg.Error), self.db.connect() as c, Level(self.stage.kafka, self.topic) as level:
            begin = time.monotonic()
            while not self._ended.wait(0.5):
                there = level()
                drawn = c.execute(f"SELECT last_value FROM {SEQUENCE[self.kind]}").fetchone()[0]
                self.times.append(time.monotonic() - begin)
                self.pending.append(max(drawn - there, 0))

    def __enter__(self):
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join(30)


def written(stage, db, event, case):
    return pgbench(db, script(event, update=""), CLIENTS, "-T", stage.options.seconds, **CASES[case])


def alone(stage, case):
    with stage.database("bench_following") as db:
        return {"rate": written(stage, db, EVENT["outbox"], case)}


def followed(stage, db, topic, kind, event, case):
    with Lag(stage, db, topic, kind) as lag:
        rate = written(stage, db, event, case)
    late = lag.pending[len(lag.pending) // 2:]
    # The most that it was behind in the second half, in seconds of writing.
    return {"rate": rate, "behind": max(late, default=0) / rate, "times": lag.times, "pending": lag.pending}


def with_outbox(stage, case):
    with stage.database("bench_following") as db, stage.topic() as topic, Outbox(stage, db).sink(topic):
        return followed(stage, db, topic, "outbox", EVENT["outbox"], case)


def with_hand(stage, kind, case):
    with stage.database("bench_following", extension=False) as db, stage.topic() as topic:
        by_hand.ByHand(stage, db, kind)
        with by_hand.relay(stage, db, kind, topic) as program:
            figures = followed(stage, db, topic, kind, EVENT["by hand, as taught"].replace("taught", kind), case)
            program.check()
            return figures


def measure(stage, raw):
    for case in CASES:
        contestants = {"nobody": lambda case=case: alone(stage, case), "outbox": lambda case=case: with_outbox(stage, case)}
        for kind, name in ("taught", "by hand, as taught"), ("tuned", "by hand, tuned"):
            if stage.wants(kind):
                contestants[name] = lambda kind=kind, case=case: with_hand(stage, kind, case)
        in_rounds(stage, case, contestants, raw.setdefault(case, []))


def rows(raw):
    out = []
    for case, rounds in raw.items():
        behind, _ = pairs(rounds, "outbox", "outbox", "behind")
        out += [Row("P11", f"{CLIENTS} clients write {case}, the relay follows : without relay", *pairs(rounds, "outbox", "nobody", "rate"), "events/s", 0.8),
                Row("P11", f"the most that it was behind, second half ({case})", behind, [], "s of writing", 1, at_most=True, itself=True)]
    return out


def tables(raw):
    return [(f"{CLIENTS} clients write {case}; who follows", rounds, {"rate": "events/s written", "behind": "s behind at most"}) for case, rounds in raw.items()]
