"""P10: how long `SELECT * FROM outbox.lag` takes with a million pending."""

import statistics
import time

from ..contestants.outbox import Outbox
from ..report import Row
from ..stage import in_rounds

FIGURES = ("P10",)
MILLION = 1_000_000


def looks(db):
    with db.connect() as c:
        times = []
        for _ in range(6):
            begin = time.monotonic()
            row = c.execute("SELECT pending FROM outbox.lag").fetchone()
            times.append(time.monotonic() - begin)
        return {"seconds": statistics.median(times[1:]), "first": times[0], "pending": row[0]}


def measure(stage, raw):
    for size in sorted({min(MILLION, stage.options.events), *([stage.options.big] if stage.options.big > 2 * MILLION else [])}):
        with stage.database("bench_lag") as db, stage.topic() as topic:
            outbox = Outbox(stage, db)
            outbox.fill(size)
            with outbox.sink(topic, paused=True):
                in_rounds(stage, f"lag with {size:,} pending", {"outbox.lag": lambda: looks(db)}, raw.setdefault(f"{size:,}", []))


def rows(raw):
    return [Row("P10", f"outbox.lag with {size} pending, warm", [r["outbox.lag"]["seconds"] for r in rounds if r.get("outbox.lag")], [],
                "s", 0.3, at_most=True, itself=True) for size, rounds in raw.items()]


def tables(raw):
    return []
