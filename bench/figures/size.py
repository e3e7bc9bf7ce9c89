"""P6: a large backlog drains as fast as a small one, and looking costs no more when the log is long."""

import contextlib
import time

from ..contestants.outbox import Outbox
from ..meter import Drain, run_time
from ..report import Row
from ..stage import Failed, in_rounds

FIGURES = ("P6",)
SMALL = 100_000
IDLE = 10  # seconds
POLL = 0.01


def drains(outbox, events, times):
    """Events a second between a tenth and nineteen twentieths of the backlog, since a small one is over within a second."""
    seconds = 0.0
    for _ in range(times):
        with outbox.stage.topic() as topic, outbox.sink(topic):
            drain = Drain().watch(outbox.stage.kafka, topic, events, 3600)
            seconds += drain.time_of(events * 0.95) - drain.time_of(events * 0.1)
    return {"rate": times * events * 0.85 / seconds}


def idle(outbox):
    """Microseconds of the relay's own thread for each look when there is nothing."""
    stage, db = outbox.stage, outbox.db
    with stage.topic() as topic, outbox.sink(topic, start="latest"):
        deadline = time.monotonic() + 60
        while db.value("SELECT max(state) FROM outbox.relays") != "idle":
            if time.monotonic() > deadline:
                raise Failed("the relay was not idle within 60 s")
            time.sleep(0.1)
        time.sleep(1)
        pid = outbox.pid()
        begin, before = time.monotonic(), run_time(pid)
        time.sleep(IDLE)
        return {"look": 1e6 * (run_time(pid) - before) / ((time.monotonic() - begin) / POLL)}


def measure(stage, raw):
    big = stage.options.big
    with contextlib.ExitStack() as stack:
        few, many, empty = (Outbox(stage, stack.enter_context(stage.database(f"bench_size_{n}"))) for n in ("few", "many", "empty"))
        few.fill(SMALL)
        many.fill(big)
        raw["big"] = big
        in_rounds(stage, "size", {"few": lambda: drains(few, SMALL, 5), "many": lambda: drains(many, big, 1)}, raw.setdefault("drains", []))
        with polling(stage):
            in_rounds(stage, "idle look", {"empty": lambda: idle(empty), "retained": lambda: idle(many)}, raw.setdefault("idle", []))


@contextlib.contextmanager
def polling(stage):
    stage.pg.configure(outbox__poll_interval="10ms")
    stage.pg.reload()
    try:
        yield
    finally:
        stage.pg.configure(outbox__poll_interval="1s")
        stage.pg.reload()


def both(rounds, mine, other, figure):
    found = [r for r in rounds if r.get(mine) and r.get(other)]
    return [r[mine][figure] for r in found], [r[other][figure] for r in found]


def rows(raw):
    if "big" not in raw:
        return []
    return [Row("P6", f"drain of {raw['big']:,} pending : of {SMALL:,}", *both(raw.get("drains", []), "many", "few", "rate"), "events/s", 0.9),
            Row("P6", f"idle look with {raw['big']:,} retained : an empty log", *both(raw.get("idle", []), "retained", "empty", "look"), "us", 1.2, at_most=True)]


def tables(raw):
    return []
