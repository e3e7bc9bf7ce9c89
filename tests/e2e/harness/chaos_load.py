"""What is written during a chaos run: events of many keys on three kinds of topics, with a ledger of what was committed."""

import json
import random
from dataclasses import dataclass

import psycopg

from .checker import Event
from .late_commits import Load, end
from .workload import Session, pause

KEYS, HOT = 500, 20
LIMIT, POISON = 20_000, 30_000  # bytes: the largest record of a topic `small`, and more than that

# In the transaction of the event, so it says exactly what was committed, also of a COMMIT whose answer was lost, and keeps it when
# the log's segments are truncated.
LEDGER = "CREATE TABLE ledger (event_id uuid, key text, payload text, place bigint, topic text, poison boolean)"
WRITE = """
    INSERT INTO ledger
    SELECT outbox.add_event(%(key)s::text, 'changed', %(payload)s::text, topic => %(topic)s, deliver_at => clock_timestamp() + %(after)s::interval),
           %(key)s, %(payload)s, %(place)s, %(topic)s, %(poison)s
"""
BULK = """
    WITH written AS (
        INSERT INTO outbox.events (aggregate_id, event_type, payload)
        SELECT %(name)s || g %% 50, 'loaded', json_build_object('row', g) FROM generate_series(1, %(events)s) g
        RETURNING event_id, aggregate_id, payload, id)
    INSERT INTO ledger SELECT event_id, aggregate_id, payload::text, id, NULL, false FROM written
"""


@dataclass(frozen=True)
class Written:
    event: Event
    topic: str | None  # None: the sink's own
    poison: bool


class ChaosLoad(Load):
    """Writers that go on until they are told to stop. The order of a key's events is the version of its row, which they lock first."""

    def __init__(self, db, seed, writers, small):
        super().__init__(db, seed, 0, 0, KEYS)
        self.count, self.small, self.stopped = writers, small, False
        self.poison, self.late_topics = 0, []  # what the next transactions write; set by whoever disturbs
        db.sql(LEDGER)

    def start(self):
        for number in range(self.count):
            self.writers.start(self.write, number)
        self.others.start(self.finish_prepared)

    def stop(self):
        self.stopped = True
        self.join()

    def write(self, number, transactions=None):
        rng, session, count = random.Random(self.seed * 1000 + number), Session(self.db), 0
        while not self.stopped:
            count += 1
            session.run(lambda c: self.transaction(c, rng, f"{self.db.name}-{number}-{count}"))
            pause(rng, 0.15)
        session.close()

    def transaction(self, c, rng, name):
        with only_lost_connections():
            for key in sorted({rng.randrange(rng.choice([HOT, KEYS])) for _ in range(rng.choice([1, 1, 1, 2]))}):
                version = c.execute("UPDATE key SET version = version + 1 WHERE key = %s RETURNING version", [key]).fetchone()[0]
                if rng.random() < 0.2:
                    pause(rng, 0.02)
                for part in range(25 if rng.random() < 0.02 else rng.choice([1, 1, 2])):
                    self.write_event(c, rng, key, version, part)
            if rng.random() < 0.1:
                pause(rng, 1.0 if rng.random() < 0.2 else 0.2)
            end(c, rng, name)

    def write_event(self, c, rng, key, version, part):
        poison = self.poison > 0
        self.poison -= poison
        topic = self.small if poison or rng.random() < 0.2 else None
        if self.late_topics and topic is None and rng.random() < 0.15:
            topic = rng.choice(self.late_topics)
        keyless = rng.random() < 0.05
        size = POISON if poison else 8_000 if topic is None and rng.random() < 0.01 else rng.randrange(300)
        c.execute(WRITE, {"key": None if keyless else str(key), "topic": topic, "poison": poison, "place": version * 1000 + part,
                          "payload": json.dumps({"key": key, "version": version, "part": part, "fill": "x" * size}),
                          "after": "1 second" if keyless and rng.random() < 0.3 else None})

    def bulk_load(self, rng, name, events):
        """In one transaction that stays open, so that it comes late."""
        session = Session(self.db)

        def body(c):
            with only_lost_connections():
                c.execute(BULK, {"name": name, "events": events})
                pause(rng, 3)
                c.commit()
        session.run(body)
        session.close()

    def written(self):
        """What was committed, from the database."""
        with self.db.connect() as c:
            rows = c.execute("SELECT event_id::text, key, payload, place, topic, poison FROM ledger").fetchall()
        return [Written(Event(e, key, payload.encode(), place), topic, poison) for e, key, payload, place, topic, poison in rows]


class only_lost_connections:
    """A writer may lose its connection when something was killed. Any other error is the test's business."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if isinstance(error, psycopg.OperationalError) and error.sqlstate and error.sqlstate[:2] not in ("08", "57"):
            raise AssertionError(f"a writer's statement failed: {error}") from error
