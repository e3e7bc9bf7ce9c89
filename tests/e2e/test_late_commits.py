"""Nothing is lost and nothing is reordered although transactions do not commit in the order of their events' ids."""
import os
import random

import pytest
from conftest import Database
from harness import checker
from harness.factor import patience, scaled
from harness.late_commits import Load
from harness.wait import eventually
from harness.workload import Killer, make_sink, nothing_pending, relays

DEFAULT_BATCH = 10_000
SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else [1, 2, 3]


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
    make_sink(db, kafka, topic, lanes=lanes, batch_size=batch)
    killer, observer = Killer(db, random.Random(seed)), Observer(db, kafka, topic)
    load = Load(db, seed, transactions, bulk)
    load.start()
    for number, kill in enumerate(kills):
        if number == len(kills) // 2:  # while the bulk load is being published
            eventually(lambda: load.bulk_committed.is_set() or load.others.errors, 200, "the bulk load is committed", interval=0.001)
        else:
            load.wait_for((number + 0.5) / len(kills))
            observer.look()
        getattr(killer, kill)()
    load.join()
    observer.look()
    nothing_pending(db)
    events = checker.committed(db)
    records = kafka.consume(topic)
    verdict = checker.check(events, records)
    print(verdict)
    verdict.must_hold(repeats=killer.most_repeats(lanes, batch))
    assert verdict.overtaken > 0, "no event was late: this run shows nothing"
    observer.agree(records, lanes * batch + killer.most_repeats(lanes, batch))


@pytest.mark.matrix
@pytest.mark.parametrize("lanes, batch", [(1, 40), (4, DEFAULT_BATCH)])
def test_late_commits_are_neither_lost_nor_reordered_while_relays_are_killed(db, kafka, seed, lanes, batch):
    """B11, B15."""
    run(db, kafka, seed, lanes=lanes, transactions=scaled(15), bulk=scaled(1000), batch=batch, kills=["terminate", "crash", "terminate"])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("number", SEEDS)
def test_late_commits_with_a_large_load_and_many_kills(db, kafka, number, lanes):
    kills = random.Random(number).choices(["terminate", "crash"], [2, 1], k=scaled(5))
    run(db, kafka, number, lanes=lanes, transactions=150, bulk=100_000, kills=kills)


def test_a_relay_that_follows_the_id_alone_loses_late_commits(make_pg, kafka, seed):
    """B11. The test above can fail: with the classic mistake built in, it does."""
    pg = make_pg(flavour="faults", conf={"outbox.fault": "follow_id_alone"})
    db = Database(pg, "postgres")
    db.sql("CREATE EXTENSION outbox")
    topic = kafka.create_topic()
    make_sink(db, kafka, topic)
    load = Load(db, seed, scaled(8), scaled(500))
    load.start()
    load.join()
    db.sql("SELECT outbox.add_event('end', 'end', '{}')")
    records = kafka.consume(topic, until=lambda got: any(r.key == b"end" for r in got))
    verdict = checker.check(checker.committed(db), records)
    assert verdict.lost and not verdict.phantom, str(verdict)


def entries_read(db):
    return db.value("SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE indexrelname ~ '^events_\\d+_xid$'")


def end_relay(db):
    [pid] = relays(db)
    db.sql("SELECT pg_terminate_backend(%s, 10000)", [pid])


@pytest.mark.parametrize("restarted", [False, True], ids=["in_one_go", "by_relays_that_are_ended"])
def test_a_large_late_transaction_is_read_once(db, mock, restarted):
    """An import that commits when later events have long gone out: many batches, and the cost of each is that of what it sends. What the
    index on (xid, id) gives out is counted."""
    events, batch = scaled(20_000), 200
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", batch_size=batch)
    mock.cmd("rtt -1 20")

    def published(n):
        """Not by outbox.pending, which reads that index too."""
        eventually(lambda: (db.value("SELECT max(published) FROM outbox.progress") or 0) >= n, patience(60), f"{n} are published", interval=0.005)
    with db.connect(autocommit=False) as bulk:
        bulk.execute("INSERT INTO outbox.events (aggregate_id, event_type, payload) SELECT g, 'late', '1' FROM generate_series(1, %s) g", [events])
        db.sql("SELECT outbox.add_event('early', 'early', '{}')")
        published(1)
        before = entries_read(db)
        bulk.commit()
    ended = 3 if restarted else 0
    for nth in range(ended):
        published((nth + 1) * events // 5)
        end_relay(db)
    assert not restarted or db.value("SELECT max(published) FROM outbox.progress") < events, "it was ended in the middle"
    published(events + 1)
    end_relay(db)  # which leaves its statistics
    read = entries_read(db) - before
    # Each id once, and one more per batch.
    assert events <= read < events * 1.5, f"{read} entries of the index for {events} events"
    assert db.value("SELECT max(published) FROM outbox.progress") == events + 1
