"""P7: bytes of WAL per event, written and published. One event a commit; then it is published in full batches."""

import contextlib
import time

from harness.postgres import Postgres

from ..contestants.by_hand import TAUGHT, TUNED, relay
from ..contestants.event import PLAIN
from ..contestants.outbox import Outbox
from ..meter import Level
from ..report import Row, pairs
from ..stage import SERVER, Database, Failed, in_rounds
from .writers import EVENT, pgbench, script

FIGURES = ("P7",)
CLIENTS = 8
# With checksums the first who reads a page after a checkpoint writes it to the WAL in full, for its hint bits.
CHECKSUMS = "checksums, and a checkpoint before publishing"
CASES = ("no checkpoint", CHECKSUMS)
# No vacuum between, which would set hint bits or not as it comes.
QUIET = {"wal_level": "replica", "max_replication_slots": 0, "autovacuum": "off"}


def measure(stage, raw):
    events = min(stage.options.events, 50_000) // CLIENTS * CLIENTS
    for case in CASES:
        with contextlib.ExitStack() as stack:
            pg = stack.enter_context(Postgres(conf=SERVER | QUIET, name="benchwal"))
            checksums = case == CHECKSUMS
            if checksums:
                pg.run("pg_checksums", "--enable", "--no-sync", "-D", str(pg.inner(pg.data)))
            pg.start()
            contestants = {
                "plain INSERT": lambda: plain(pg, events),
                "outbox": lambda: through_outbox(stage, pg, events, checksums),
            }
            for kind, name, table in ("taught", "by hand, as taught", TAUGHT), ("tuned", "by hand, tuned", TUNED):
                if stage.wants(kind):
                    contestants[name] = lambda kind=kind, table=table: by_hand(stage, pg, kind, table, events, checksums)
            in_rounds(stage, f"WAL, {case}", contestants, raw.setdefault(case, []))


@contextlib.contextmanager
def database(pg, extension=False):
    pg.sql("CREATE DATABASE wal")
    try:
        if extension:
            pg.sql("CREATE EXTENSION outbox", dbname="wal")
        # What making it wrote comes to an end before anything is counted.
        pg.sql("CHECKPOINT")
        yield Database(pg, "wal")
    finally:
        if pg.running:
            pg.sql("DROP DATABASE IF EXISTS wal WITH (FORCE)")


class Counter:
    def __init__(self, pg, events):
        self.pg, self.events = pg, events
        self.figures = {"bytes": 0.0}

    @contextlib.contextmanager
    def counting(self, what):
        before = self.pg.value("SELECT pg_current_wal_lsn()")
        yield
        spent = float(self.pg.value("SELECT pg_current_wal_lsn() - %s::pg_lsn", [before])) / self.events
        self.figures[what] = spent
        self.figures["bytes"] += spent


def write(counter, db, event):
    with counter.counting("write"):
        pgbench(db, script(event, update=""), CLIENTS, "-t", counter.events // CLIENTS)


def plain(pg, events):
    with database(pg) as db:
        db.sql(PLAIN)
        counter = Counter(pg, events)
        write(counter, db, EVENT["plain INSERT"])
        return counter.figures


def until(stage, topic, events, check, timeout=300):
    with Level(stage.kafka, topic) as level:
        deadline = time.monotonic() + timeout
        while level() < events:
            check()
            if time.monotonic() > deadline:
                raise Failed(f"not all were published within {timeout} s")
            time.sleep(0.05)


def through_outbox(stage, pg, events, checkpoint):
    with database(pg, extension=True) as db, stage.topic() as topic:
        outbox = Outbox(stage, db)
        pg.configure(outbox__publish="off")
        pg.reload()
        with outbox.sink(topic):
            counter = Counter(pg, events)
            write(counter, db, EVENT["outbox"])
            if checkpoint:
                pg.sql("CHECKPOINT")
            with counter.counting("publish"):
                pg.configure(outbox__publish="on")
                pg.reload()
                until(stage, topic, events, outbox.check)
                # The last batch is recorded a moment after the topic has it.
                time.sleep(1)
            return counter.figures


def by_hand(stage, pg, kind, table, events, checkpoint):
    with database(pg) as db, stage.topic() as topic:
        db.sql(table)
        counter = Counter(pg, events)
        write(counter, db, EVENT["by hand, as taught"].replace("taught", kind))
        if checkpoint:
            pg.sql("CHECKPOINT")
        with counter.counting("publish"), relay(stage, db, kind, topic) as program:
            until(stage, topic, events, program.check)
            time.sleep(1)
        return counter.figures


def rows(raw):
    out = []
    for case, rounds in raw.items():
        aim = 1.2 if case == "no checkpoint" else None
        out.append(Row("P7", f"WAL per event, written and published : plain INSERT ({case})", *pairs(rounds, "outbox", "plain INSERT", "bytes"),
                       "B", aim, at_most=True))
    return out


def tables(raw):
    return [(f"WAL per event, {case}", rounds, {"bytes": "B in all", "write": "written", "publish": "published"}) for case, rounds in raw.items()]
