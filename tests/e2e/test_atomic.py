"""An event leaves if and only if its transaction committed, and its commit is on disk first."""
import random
import signal

import pytest
from conftest import Database
from harness import checker
from harness.factor import scaled
from harness.wait import eventually
from harness.workload import Killer, Session, Threads, make_sink, nothing_pending, pause

WRITERS = 8
PG_CONF = {"wal_writer_delay": "10s"}  # else the WAL writer flushes asynchronous commits before a stop can lose them


class Writer:
    """Transactions with pauses and savepoints, a third of them rolled back. Keeps the event_ids of what it committed and of what
    it took back."""

    def __init__(self, db, seed, number):
        self.db, self.number, self.rng = db, number, random.Random(seed * 1000 + number)
        self.kept, self.undone = [], []

    def run(self, transactions):
        with self.db.connect(autocommit=False) as c:
            for _ in range(transactions):
                self.transaction(c)

    def transaction(self, c):
        kept, undone = self.events(c), []
        if self.rng.random() < 0.4:
            c.execute("SAVEPOINT a")
            kept_inside = self.events(c)
            if self.rng.random() < 0.5:
                c.execute("SAVEPOINT b")
                undone += self.events(c)
                c.execute("ROLLBACK TO b")
            if self.rng.random() < 0.5:
                c.execute("ROLLBACK TO a")
                undone += kept_inside
            else:
                c.execute("RELEASE a")
                kept += kept_inside
            kept += self.events(c)
        pause(self.rng, 0.02)
        if self.rng.random() < 1 / 3:
            c.rollback()
            self.undone += kept + undone
        else:
            c.commit()
            self.kept += kept
            self.undone += undone

    def events(self, c):
        written = []
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            key, size = f"{self.number}-{self.rng.randrange(5)}", self.rng.choice([1, 10, 2000])
            payload = '{"text": "%s"}' % ("x" * size)
            if self.rng.random() < 0.5:
                row = c.execute("SELECT outbox.add_event(%s, 'changed', %s)", [key, payload]).fetchone()
            else:
                row = c.execute("INSERT INTO outbox.events (aggregate_id, event_type, payload) VALUES (%s, 'changed', %s)"
                                " RETURNING event_id", [key, payload]).fetchone()
            written.append(str(row[0]))
            pause(self.rng, 0.004)
        return written


@pytest.mark.matrix
def test_exactly_the_committed_events_are_on_the_topic(db, kafka, topic, seed):
    make_sink(db, kafka, topic, lanes=2)
    writers, threads = [Writer(db, seed, n) for n in range(WRITERS)], Threads()
    for writer in writers:
        threads.start(writer.run, scaled(25))
    threads.join()
    nothing_pending(db)
    events = checker.committed(db)
    assert sorted(e.event_id for e in events) == sorted(i for w in writers for i in w.kept), "the log has what was committed"
    assert sum(len(w.undone) for w in writers) > 100
    checker.check(events, kafka.consume(topic)).must_hold(repeats=0)


def test_no_event_of_an_asynchronous_commit_is_sent_whose_row_is_gone_after_a_crash(db, kafka, topic, seed, rng):
    """The server is stopped at random moments, so some commits are lost, as synchronous_commit = off has it."""
    make_sink(db, kafka, topic, batch_size=100)
    killer, stop, acknowledged = Killer(db, rng), [], []

    def write(number):
        writer, session = random.Random(seed * 1000 + number), Session(db, "SET synchronous_commit = off")

        def transaction(c):
            written = [c.execute("SELECT outbox.add_event(%s, 'changed', '{}')", [f"{number}"]).fetchone()[0] for _ in range(3)]
            c.commit()
            acknowledged.extend(written)
        while not stop:
            session.run(transaction)
            pause(writer, 0.005)
        session.close()
    threads = Threads()
    for number in range(WRITERS):
        threads.start(write, number)
    for _ in range(scaled(3)):
        before = db.value("SELECT batch FROM outbox.lane_progress")
        eventually(lambda: db.value("SELECT batch FROM outbox.lane_progress") > before, 60, "the relay at work")
        grown = len(acknowledged) + rng.randrange(50, 400)
        eventually(lambda: len(acknowledged) > grown or threads.errors, 60, "more events", interval=0.003)
        killer.immediate_stop()
    stop.append(True)
    threads.join()
    nothing_pending(db)
    events = checker.committed(db)
    verdict = checker.check(events, kafka.consume(topic))
    gone = set(map(str, acknowledged)) - {e.event_id for e in events}
    print(f"{len(acknowledged)} events were acknowledged, {len(gone)} of them are gone; {verdict}")
    verdict.must_hold(repeats=killer.most_repeats(1, 100))


@pytest.mark.parametrize("fault, gone", [("after_acknowledgement", 0), ("after_acknowledgement,not_durable", 1)],
                         ids=["made_durable", "and_without_that_it_is"])
def test_an_event_that_was_sent_is_not_lost_with_an_asynchronous_commit(make_pg, kafka, topic, fault, gone):
    """The relay is held between the acknowledgement and its own commit, which would bring the writer's commit to disk too."""
    pg = make_pg(flavour="faults", conf={**PG_CONF, "outbox.fault": fault, "autovacuum": "off"})
    db = Database(pg, "postgres")
    db.sql("CREATE EXTENSION outbox")
    make_sink(db, kafka, topic)
    with db.connect() as c:
        eventually(lambda: c.execute("SELECT count(*) FROM outbox.live_relays() WHERE state = 'idle'").fetchone()[0] == 1, 30, "an idle relay")
        # Whatever fills a page of the WAL wakes it, and it may then write the commit, too.
        pg.signal(pg.backends("backend_type = 'walwriter'")[0]["pid"], signal.SIGSTOP)
        c.execute("SET synchronous_commit = off")
        c.execute("SELECT outbox.add_event('k', 'changed', '{}')")
    sent = kafka.consume(topic, until=1)
    pg.kill(patience=1)
    pg.configure(outbox__fault="")
    pg.start()
    verdict = checker.check(checker.committed(db), sent)
    assert len(verdict.phantom) == gone, str(verdict)
