"""Nothing is lost and nothing is reordered although transactions do not commit in the order of their events' ids."""
import json
import os
import random
import threading
import time
import zlib

import psycopg
import pytest
from conftest import Database
from harness import checker
from harness.factor import scaled
from harness.wait import eventually
from harness.workload import GONE, Killer, Session, Threads, make_sink, nothing_pending, pause

WRITERS, KEYS = 12, 10
DEFAULT_BATCH = 10_000
SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else [1, 2, 3]

SCHEMA = f"""
    CREATE TABLE key (key int PRIMARY KEY, version int NOT NULL);
    INSERT INTO key SELECT g, 0 FROM generate_series(0, {KEYS - 1}) g;
"""
BULK = """
    INSERT INTO outbox.events (aggregate_id, event_type, payload)
    SELECT 'bulk-' || g %% 50, 'loaded', json_build_object('row', g) FROM generate_series(1, %s) g
"""


class Load:
    """Twelve writers of ten keys. They lock a key's row, draw ids, and dawdle; a seventh rolls back, a tenth prepares and somebody else
    decides later. One transaction writes `bulk` events at the beginning and commits in the middle."""

    def __init__(self, db, seed, transactions, bulk):
        self.db, self.seed, self.bulk = db, seed, bulk
        self.total, self.done = WRITERS * transactions, 0
        self.lock, self.bulk_written = threading.Lock(), threading.Event()
        self.writers, self.others = Threads(), Threads()

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
        dice = rng.random()
        if dice < 0.15:
            c.rollback()
        elif dice < 0.25:
            c.execute(f"PREPARE TRANSACTION '{name}'")
        else:
            c.commit()

    def load_in_bulk(self):
        def body(c):
            c.execute(BULK, [self.bulk])
            self.bulk_written.set()
            while self.done < self.total / 2 and self.writers_may_run:
                time.sleep(0.02)
                c.execute("SELECT 1")  # notices when the server has gone away
            c.commit()
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


class Observer:
    """Looks at the view outbox.pending while everything runs, and says afterwards whether relay and view agreed."""

    def __init__(self, db, kafka, topic):
        self.db, self.kafka, self.topic, self.samples = db, kafka, topic, []

    def look(self):
        """One statement, hence one snapshot, between two looks at the topic."""
        before = self.kafka.end_offsets(self.topic)
        pending, published = self.db.sql(
            "SELECT coalesce(array_agg(e.event_id::text) FILTER (WHERE p.id IS NOT NULL), '{}'),"
            " coalesce(array_agg(e.event_id::text) FILTER (WHERE p.id IS NULL), '{}')"
            " FROM outbox.events e LEFT JOIN outbox.pending p USING (id)")[0]
        self.samples.append((before, set(pending), set(published), self.kafka.end_offsets(self.topic)))

    def agree(self, records, in_flight):
        for before, pending, published, after in self.samples:
            on_topic = {checker.event_id(r) for r in records if r.offset < after[r.partition]}
            assert published <= on_topic, f"not pending and not on the topic: {sorted(published - on_topic)[:5]}"
            already = {checker.event_id(r) for r in records if r.offset < before[r.partition]} & pending
            assert len(already) <= in_flight, f"{len(already)} events pending and on the topic, {in_flight} can be in flight"


def run(db, kafka, seed, *, lanes, transactions, bulk, kills, batch=DEFAULT_BATCH):
    print(f"seed {seed}, lanes {lanes}, batch_size {batch}")
    topic = kafka.create_topic(partitions=1 if lanes == 1 else 3)
    db.sql(SCHEMA)
    make_sink(db, kafka, topic, lanes=lanes, batch_size=batch)
    killer, observer = Killer(db, random.Random(seed)), Observer(db, kafka, topic)
    load = Load(db, seed, transactions, bulk)
    load.start()
    for number, kill in enumerate(kills):
        load.wait_for((number + 0.5) / len(kills))
        observer.look()
        getattr(killer, kill)()
    load.join()
    nothing_pending(db)
    events = checker.committed(db)
    records = kafka.consume(topic, until=checker.has_all(events))
    verdict = checker.check(events, records)
    print(verdict)
    verdict.must_hold(repeats=killer.most_repeats(lanes, batch))
    assert verdict.overtaken > 0, "no event was late: this run shows nothing"
    observer.agree(records, lanes * batch + killer.most_repeats(lanes, batch))


@pytest.mark.matrix
@pytest.mark.parametrize("lanes, batch", [(1, 40), (4, DEFAULT_BATCH)])
def test_late_commits_are_neither_lost_nor_reordered_while_relays_are_killed(db, kafka, seed, lanes, batch):
    run(db, kafka, seed, lanes=lanes, transactions=scaled(15), bulk=scaled(1000), batch=batch, kills=["terminate", "crash", "terminate"])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("number", SEEDS)
def test_late_commits_with_a_large_load_and_many_kills(db, kafka, number, lanes):
    kills = random.Random(number).choices(["terminate", "crash"], [3, 1], k=scaled(3))
    run(db, kafka, number, lanes=lanes, transactions=150, bulk=100_000, kills=kills)


def test_a_relay_that_follows_the_id_alone_loses_late_commits(make_pg, kafka, seed):
    """The test above can fail: with the classic mistake built in, it does."""
    pg = make_pg(flavour="faults", conf={"outbox.fault": "follow_id_alone"})
    db = Database(pg, "postgres")
    db.sql("CREATE EXTENSION outbox")
    db.sql(SCHEMA)
    topic = kafka.create_topic()
    make_sink(db, kafka, topic)
    load = Load(db, seed, scaled(8), scaled(500))
    load.start()
    load.join()
    db.sql("SELECT outbox.add_event('end', 'end', '{}')")
    records = kafka.consume(topic, until=lambda got: any(r.key == b"end" for r in got))
    verdict = checker.check(checker.committed(db), records)
    assert verdict.lost and not verdict.phantom, str(verdict)
