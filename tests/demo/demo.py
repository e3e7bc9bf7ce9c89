"""A payments scenario, told as it goes. Started by tests/demo/run. SINK=http sends webhooks instead of Kafka records."""

import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests/e2e"))

import psycopg  # noqa: E402
from harness import env  # noqa: E402
from harness.postgres import Postgres  # noqa: E402
from harness.wait import eventually  # noqa: E402
from places import Endpoint, Topic  # noqa: E402
from plot import binned, draw  # noqa: E402

PAYMENTS = 1_200     # written one by one, by WRITERS clients
WRITERS = 4
REFUSED = 7          # every so manieth capture is rolled back
PLOT = Path(os.environ.get("DEMO_PLOT") or env.ENV / "demo.svg")

START = time.monotonic()


def now():
    return time.monotonic() - START


# ---- talking -------------------------------------------------------------------------------------------------------------

def say(text=""):
    print(text, flush=True)


def act(title):
    say()
    say(f"== {title} ({now():.0f} s)")


def table(cursor):
    """Prints a result as psql would."""
    names = [d.name for d in cursor.description]
    rows = [["" if v is None else str(v) for v in row] for row in cursor.fetchall()]
    widths = [max(len(x) for x in column) for column in zip(names, *rows)]
    line = lambda cells: "   " + " | ".join(c.ljust(w) for c, w in zip(cells, widths)).rstrip()
    say(line(names))
    say("   " + "-+-".join("-" * w for w in widths))
    for row in rows:
        say(line(row))


def show_lag(db, when):
    say(f"   The lag {when}:  SELECT * FROM outbox.lag")
    with db() as c:
        table(c.execute("SELECT sink, state, pending, date_trunc('milliseconds', oldest_pending_age) AS oldest_pending_age,"
                        " parked, dead, last_error FROM outbox.lag"))


class Watcher:
    """Looks at the lag all the time, for the picture. While the server is away there is a gap."""

    def __init__(self, connect):
        self.pending = []
        self._connect, self._ends = connect, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self):
        while not self._ends.is_set():
            try:
                with self._connect(connect_timeout=2) as c:
                    while not self._ends.wait(0.1):
                        self.pending.append((now(), c.execute("SELECT pending FROM outbox.lag").fetchone()[0]))
            except psycopg.Error:
                self.pending.append((now(), None))
                self._ends.wait(0.1)

    def close(self):
        self._ends.set()
        self._thread.join(10)


# ---- the business ----------------------------------------------------------------------------------------------------------

AUTHORIZE = """INSERT INTO payments VALUES (%(id)s, 'authorized', %(amount)s);
   SELECT outbox.add_event(%(id)s, 'authorized', json_build_object('amount', %(amount)s), aggregate_type => 'payment');"""
CAPTURE = """UPDATE payments SET status = 'captured' WHERE id = %(id)s;
   SELECT outbox.add_event(%(id)s, 'captured', json_build_object('amount', %(amount)s), aggregate_type => 'payment');"""


def run_statements(connection, text, **values):
    for statement in text.split(";\n"):
        connection.execute(statement.strip().rstrip(";"), {k: v for k, v in values.items() if f"%({k})s" in statement})


def show_statements(text, **values):
    for name, value in values.items():
        text = text.replace(f"%({name})s", f"'{value}'" if isinstance(value, str) else str(value))
    return text


class Writers:
    """Clients that authorise and capture payments. A client whose connection breaks takes a new one and goes on with the
    next payment: whether the broken transaction committed, only the table knows, and the table is what the topic is
    compared with."""

    def __init__(self, connect):
        self._connect = connect
        self._numbers = iter(range(1, PAYMENTS + 1))
        self._lock = threading.Lock()
        self.committed = self.rolled_back = self.broken = 0
        self._threads = [threading.Thread(target=self._write, args=(random.Random(n),), daemon=True) for n in range(WRITERS)]

    def start(self):
        for t in self._threads:
            t.start()

    @property
    def busy(self):
        return any(t.is_alive() for t in self._threads)

    def _count(self, what):
        with self._lock:
            setattr(self, what, getattr(self, what) + 1)

    def _write(self, rng):
        connection = None
        while True:
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                break
            try:
                if connection is None or connection.closed or connection.broken:
                    connection = self._connect(autocommit=False, connect_timeout=5)
                self._payment(connection, number)
                time.sleep(rng.uniform(0, 0.02))
            except psycopg.OperationalError:
                self._count("broken")
                time.sleep(0.2)
        if connection is not None:
            connection.close()

    def _payment(self, connection, number):
        values = {"id": f"pay-{number}", "amount": number % 500 + 1}
        run_statements(connection, AUTHORIZE, **values)
        connection.commit()
        self._count("committed")
        run_statements(connection, CAPTURE, **values)
        if number % REFUSED == 0:  # the bank said no
            connection.rollback()
            self._count("rolled_back")
        else:
            connection.commit()
            self._count("committed")


# ---- the play --------------------------------------------------------------------------------------------------------------

class Demo:
    def __init__(self, stack):
        self.pg = stack.enter_context(Postgres(env.default_version()))
        self.place = (Endpoint if os.environ.get("SINK") == "http" else Topic)(stack, say, now)
        self.pg.start()
        self.pg.sql("CREATE DATABASE shop")
        self.stack, self.marks = stack, []

    def connect(self, **kw):
        return self.pg.connect("shop", **kw)

    def value(self, query, *params):
        with self.connect() as c:
            row = c.execute(query, params).fetchone()
            return row and row[0]

    def pending(self):
        return self.value("SELECT pending FROM outbox.lag")

    # ---- act 1

    def set_up(self):
        versions = self.value("SELECT split_part(version(), ' ', 2)")
        say(f"   PostgreSQL {versions} on port {self.pg.port}, {self.place.what}.")
        for sql in ("CREATE TABLE payments (id text PRIMARY KEY, status text NOT NULL, amount int NOT NULL)",
                    "CREATE EXTENSION outbox", *self.place.statements()):
            say(f"   {sql};")
            with self.connect() as c:
                c.execute(sql)
        self.watcher = Watcher(self.connect)
        self.stack.callback(self.watcher.close)

    def three_transactions(self):
        sink = self.place.sink
        say(f"   The sink is paused for a moment, so that there is a lag to look at:  SELECT outbox.pause('{sink}')")
        self.value("SELECT outbox.pause(%s)", sink)
        with self.connect(autocommit=False) as c:
            for what, text, end in (("authorise", AUTHORIZE, "COMMIT"), ("capture", CAPTURE, "COMMIT"),
                                    ("capture again, and the bank says no", CAPTURE, "ROLLBACK")):
                values = {"id": "pay-0", "amount": 42}
                say(f"   -- {what}")
                say(f"   BEGIN;\n   {show_statements(text, **values)}\n   {end};")
                run_statements(c, text, **values)
                c.commit() if end == "COMMIT" else c.rollback()
        show_lag(self.connect, "before")
        self.value("SELECT outbox.resume(%s)", sink)
        say(f"   SELECT outbox.resume('{sink}')")
        eventually(lambda: len(self.place.records) >= 2, 30, f"two events {self.place.there}")
        eventually(lambda: self.pending() == 0, 10, "nothing pending")
        show_lag(self.connect, "after")
        say(f"   {self.place.as_seen} (the rolled-back event is not there):")
        for key, event_id, event_type, value in self.place.records:
            say(f"   key {key}  event_type {event_type}  event_id {event_id}\n      {value.decode()}")

    # ---- act 2

    def progress(self, writers):
        with contextlib.suppress(psycopg.OperationalError), self.connect(connect_timeout=2) as c:
            lag = c.execute("SELECT pending, extract(epoch FROM oldest_pending_age)::numeric(10,2), state FROM outbox.lag").fetchone()
            say(f"   {now():3.0f} s   committed {writers.committed:5}   rolled back {writers.rolled_back:4}"
                f"   {self.place.there} {len(self.place.records) - 2:5}   pending {lag[0]:5}, oldest {lag[1]} s, relay {lag[2]}")

    def relay_in_flight(self, limit=2):
        """The pid of the relay at a moment when it has sent events and waits for the acknowledgements."""
        def look():
            with self.connect() as c:
                row = c.execute("SELECT pid FROM pg_stat_activity"
                                " WHERE backend_type = 'outbox relay' AND state = 'active'").fetchone()
                return row and row[0]
        try:
            return eventually(look, limit, "a relay that is publishing", interval=0.002, ignore=(psycopg.OperationalError,))
        except AssertionError:  # too quick to be caught at it
            return eventually(lambda: self.value("SELECT pid FROM outbox.relays WHERE pid IS NOT NULL"), 20, "a relay",
                              ignore=(psycopg.OperationalError,))

    def payments_while_relays_die(self):
        say(f"   {WRITERS} clients authorise and capture {PAYMENTS} payments, every {REFUSED}th capture is rolled back.")
        writers = Writers(self.connect)
        writers.start()
        for second in range(1, 1000):
            time.sleep(1)
            self.progress(writers)
            if second in (2, 4) and writers.busy:
                self.terminate_relay()
            if not writers.busy:
                break
        say(f"   Then {self.place.bulk} payments are settled in one transaction, and the relay that sends them is killed:")
        eventually(lambda: self.pending() == 0, 30, "nothing pending")
        before = self.place.end()
        with self.connect() as c:
            c.execute("SELECT count(outbox.add_event('settled-' || n, 'settled', json_build_object('number', n),"
                      " aggregate_type => 'payment')) FROM generate_series(1, %s) n", [self.place.bulk])
        writers.committed += self.place.bulk
        self.kill_relay(before)
        while self.pending() != 0:
            self.progress(writers)
            time.sleep(0.5)
        self.progress(writers)
        if writers.broken:
            say(f"   {writers.broken} connections of the clients broke.")

    def terminate_relay(self):
        pid = self.relay_in_flight()
        say(f"           SELECT pg_terminate_backend({pid})  -- the relay")
        self.value("SELECT pg_terminate_backend(%s)", pid)
        self.marks.append((now(), "terminated", "ended"))

    def kill_relay(self, before):
        pid = self.relay_in_flight()
        eventually(lambda: self.place.end() > before, 10, f"the first events of the batch {self.place.there}", interval=0.001)
        say(f"           kill -9 {pid}  -- the relay, once its batch has begun to arrive. PostgreSQL restarts all its processes after this.")
        mark = self.pg.mark()
        self.pg.signal(pid, signal.SIGKILL)
        self.marks.append((now(), "kill -9", "crash"))
        # Not before the server has noticed and recovered; stopping it in between is what it takes badly.
        eventually(lambda: "database system is ready" in self.pg.log_since(mark), 60, "the server is back")

    # ---- the reckoning

    def reckon(self):
        with self.connect() as c:
            rows = c.execute("SELECT event_id::text, id, aggregate_id FROM outbox.events").fetchall()
        ids = {event_id: (number, key) for event_id, number, key in rows}
        eventually(lambda: len({r[1] for r in self.place.records}) >= len(ids), 30, f"{len(ids)} events {self.place.there}")
        records = list(self.place.records)
        seen = Counter(event_id for _, event_id, _, _ in records)
        missing = set(ids) - set(seen)
        phantom = set(seen) - set(ids)
        first = dict.fromkeys(event_id for _, event_id, _, _ in records if event_id in ids)
        last_of_key, disorder = {}, 0
        for event_id in first:
            number, key = ids[event_id]
            disorder += number < last_of_key.get(key, 0)
            last_of_key[key] = number
        twice = sum(1 for n in seen.values() if n > 1)
        show_lag(self.connect, "in the end")
        say(f"   committed events                                {len(ids):6}")
        say(f"   {f'of them {self.place.there}':48}{len(ids) - len(missing):6}")
        say(f"   {f'{self.place.there}, but rolled back':48}{len(phantom):6}")
        say(f"   first deliveries out of a payment's order       {disorder:6}")
        say(f"   events that came twice or more                  {twice:6}   (a consumer knows them by their event_id)")
        if note := self.place.footnote():
            say(f"   {note}")
        return not missing and not phantom and not disorder


    def picture(self):
        self.watcher.close()
        times = list(self.place.times)
        PLOT.write_text(draw("make demo: payments, and relays that are killed", [
            ("lag", "lag: events that wait", self.watcher.pending),
            ("throughput", f"throughput: events a second {self.place.there}", binned(times, 0.25, lambda found: len(found) * 4)),
            ("latency", "latency: ms from the event's being written to a consumer, the slowest of each quarter of a second",
             [(at, found and 1000 * found) for at, found in binned(times, 0.25, lambda found: max(found, default=None))]),
        ], self.marks))
        say(f"   The run as a picture (lag, throughput, latency): {PLOT}")


def main():
    def terminate(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, terminate)
    env.sweep()
    with contextlib.ExitStack() as stack:
        act("A server of the demo's own, and where its events go")
        demo = Demo(stack)
        demo.set_up()
        act("Authorise, capture, and one capture that is rolled back")
        demo.three_transactions()
        act("Many payments, and relays that are killed")
        demo.payments_while_relays_die()
        act("Did every event arrive?")
        good = demo.reckon()
        say()
        demo.picture()
        say(f"   {'Every committed event arrived, in order, and no other.' if good else 'SOMETHING IS WRONG: see above.'}"
            f" The demo took {now():.0f} s.")
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted; everything has been stopped")
        sys.exit(130)
