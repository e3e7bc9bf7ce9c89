"""A load whose transactions do not commit in the order of their events' ids."""

import json
import random
import threading
import time
import zlib

import psycopg

from .factor import patience
from .wait import eventually
from .workload import GONE, Session, Threads, pause

WRITERS, KEYS = 12, 10

SCHEMA = """
    CREATE TABLE key (key int PRIMARY KEY, version int NOT NULL);
    INSERT INTO key SELECT g, 0 FROM generate_series(0, {last}) g;
"""
BULK = """
    INSERT INTO outbox.events (aggregate_id, event_type, payload)
    SELECT 'bulk-' || g %% 50, 'loaded', json_build_object('row', g) FROM generate_series(1, %s) g
    RETURNING id
"""
PASSED = "SELECT max(position) > %s FROM outbox.lane_progress"  # somebody's later events were published before these commit


def end(c, rng, name):
    """One way or another: most transactions commit."""
    dice = rng.random()
    if dice < 0.15:
        c.rollback()
    elif dice < 0.25:
        c.execute(f"PREPARE TRANSACTION '{name}'")
    else:
        c.commit()


class Load:
    """Twelve writers of ten keys. They lock a key's row, draw ids, and dawdle; a seventh rolls back, a tenth prepares and somebody else
    decides later. One transaction writes `bulk` events at the beginning and commits in the middle, when later ones were published."""

    def __init__(self, db, seed, transactions, bulk, keys=KEYS):
        self.db, self.seed, self.bulk = db, seed, bulk
        self.total, self.done = WRITERS * transactions, 0
        self.lock, self.bulk_written, self.bulk_committed = threading.Lock(), threading.Event(), threading.Event()
        self.writers, self.others = Threads(), Threads()
        db.sql(SCHEMA.format(last=keys - 1))

    def start(self):
        self.others.start(self.load_in_bulk)
        assert self.bulk_written.wait(90), "the bulk load is not written"
        self.others.start(self.finish_prepared)
        for number in range(WRITERS):
            self.writers.start(self.write, number, self.total // WRITERS)

    def join(self):
        self.writers.join()
        self.others.join()

    def wait_for(self, share):
        eventually(lambda: self.done >= share * self.total or not self.writers.running, 200, f"{share:.0%} of the transactions")

    def write(self, number, transactions):
        rng, session = random.Random(self.seed * 1000 + number), Session(self.db)
        for count in range(transactions):
            session.run(lambda c: self.transaction(c, rng, f"{self.db.name}-{number}-{count}"))
            with self.lock:
                self.done += 1
        session.close()

    @staticmethod
    def transaction(c, rng, name):
        for key in sorted(rng.sample(range(KEYS), rng.choice([1, 1, 1, 2]))):
            version = c.execute("UPDATE key SET version = version + 1 WHERE key = %s RETURNING version", [key]).fetchone()[0]
            if rng.random() < 0.2:
                pause(rng, 0.02)
            for part in range(25 if rng.random() < 0.02 else rng.choice([1, 1, 2])):
                c.execute("SELECT outbox.add_event(%s, 'changed', %s)", [str(key), json.dumps({"version": version, "part": part})])
        if rng.random() < 0.1:
            pause(rng, 0.2)
        end(c, rng, name)

    def load_in_bulk(self):
        def body(c):
            last = max(row[0] for row in c.execute(BULK, [self.bulk]))
            self.bulk_written.set()
            deadline = time.monotonic() + patience(120)
            # The statements notice, too, when the server has gone away.
            while not (c.execute(PASSED, [last]).fetchone()[0] and (self.done >= self.total / 2 or not self.writers_may_run)):
                assert time.monotonic() < deadline, "no lane has come past the bulk load"
                time.sleep(0.02)
            c.commit()
            self.bulk_committed.set()
        session = Session(self.db)
        while not session.run(body):
            pass
        session.close()

    @property
    def writers_may_run(self):
        return not self.writers.threads or self.writers.running

    def finish_prepared(self):
        """COMMIT PREPARED or ROLLBACK PREPARED, from another session, after a while. A crash leaves prepared transactions as they are."""
        rng = random.Random(self.seed)
        while True:
            last = not self.writers_may_run
            try:
                found = self.db.sql("SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared")
                for gid, in found:
                    pause(rng, 0.05)
                    with_it = "ROLLBACK" if zlib.crc32(gid.encode()) % 5 == 0 else "COMMIT"
                    self.db.sql(f"{with_it} PREPARED '{gid}'")
                if last and not found:
                    return
            except (psycopg.errors.UndefinedObject, *GONE):
                pass
            time.sleep(0.02)
