"""P3: what an event costs its writer. pgbench: a row is updated, and beside it an event written, in one transaction."""

import contextlib
import re

from ..contestants.by_hand import TAUGHT
from ..contestants.event import AGGREGATE, PAYLOAD, PLAIN, TYPE
from ..report import Row, pairs
from ..stage import Failed, in_rounds

FIGURES = ("P3",)
CLIENTS = (1, 8, 32)
ROWS = 100_000
PAYMENTS = f"""
    CREATE TABLE payments (id bigint PRIMARY KEY, status text, version bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50);
    INSERT INTO payments SELECT g, 'authorized' FROM generate_series(1, {ROWS}) g;
    {PLAIN};
"""
COLUMNS = "(aggregate_type, aggregate_id, event_type, payload)"
VALUES = f"('{AGGREGATE}', 'key-' || :id, '{TYPE}', '{PAYLOAD}')"
EVENT = {
    "the update alone": "",
    "plain INSERT": f"INSERT INTO plain {COLUMNS} VALUES {VALUES};",
    "outbox": f"SELECT outbox.add_event('key-' || :id, '{TYPE}', '{PAYLOAD}', aggregate_type => '{AGGREGATE}');",
    "by hand, as taught": f"INSERT INTO taught {COLUMNS} VALUES {VALUES};",
}
UPDATE = "UPDATE payments SET status = 'captured', version = version + 1 WHERE id = :id;"


def script(event, update=UPDATE):
    """One transaction; without an update it is the event's statement alone."""
    work = f"BEGIN;\n{update}\n{event}\nEND;" if update else event
    return f"\\set id random(1, {ROWS})\n{work}\n"


def prepare(db):
    db.sql(PAYMENTS)
    db.sql(TAUGHT)
    db.sql("VACUUM ANALYZE")


def pgbench(db, text, clients, *args, **environ):
    """Transactions a second."""
    file = db.pg.dir / "script.sql"
    file.write_text(text)
    file.chmod(0o644)
    done = db.pg.run("pgbench", "-n", "-M", "prepared", "-c", clients, "-j", min(clients, 2), *args, "-f", db.pg.inner(file), db.name,
                     check=False, timeout=1800, **environ)
    said = re.search(r"^tps = ([0-9.]+)", done.stdout, re.M)
    if done.returncode or not said:
        raise Failed(f"pgbench gave {done.returncode}:\n{done.stdout}{done.stderr}")
    return float(said[1])


def measure(stage, raw):
    with contextlib.ExitStack() as stack:
        db = stack.enter_context(stage.database("bench_writers"))
        prepare(db)
        for clients in CLIENTS:
            contestants = {name: (lambda event=event: {"rate": pgbench(db, script(event), clients, "-T", stage.options.seconds)})
                           for name, event in EVENT.items()}
            in_rounds(stage, f"writers, {clients} clients", contestants, raw.setdefault(str(clients), []))


def rows(raw):
    return [Row("P3", f"update and add_event : update and plain INSERT, {clients} client{'s' * (clients != '1')}",
                *pairs(rounds, "outbox", "plain INSERT", "rate"), "tx/s", 0.95) for clients, rounds in raw.items()]


def tables(raw):
    return [(f"Writers, {clients} clients", rounds, {"rate": "transactions/s"}) for clients, rounds in raw.items()]
