"""Payments while everything is killed: relays, the server, the broker, the consumer."""
import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from harness import checker, receipts
from harness.factor import scaled
from harness.wait import eventually
from harness.workload import GONE, Killer, Session, Threads, make_sink, nothing_pending, pause

WRITERS = 8
BATCH = 10  # small, so that there are many in which to kill a relay


class Writers:
    """Each payment is authorized in one transaction and captured in another; a writer whose connection broke looks first what became of
    its transaction."""

    def __init__(self, db, seed, payments):
        self.db, self.seed, self.total, self.done = db, seed, payments, 0
        self.threads, self.lock = Threads(), threading.Lock()
        db.sql("CREATE TABLE payment (id int PRIMARY KEY, state text NOT NULL)")

    def start(self):
        for number in range(WRITERS):
            self.threads.start(self.write, number)

    def wait_for(self, share):
        eventually(lambda: self.done >= share * self.total or not self.threads.running, 200, f"{share:.0%} of the payments")

    def write(self, number):
        rng, session = random.Random(self.seed * 1000 + number), Session(self.db)
        for payment in range(number, self.total, WRITERS):
            for step in (self.authorize, self.capture):
                while not session.run(lambda c, step=step: step(c, rng, payment)):
                    pass
            with self.lock:
                self.done += 1
        session.close()

    @staticmethod
    def authorize(c, rng, payment):
        if c.execute("INSERT INTO payment VALUES (%s, 'authorized') ON CONFLICT DO NOTHING", [payment]).rowcount:
            c.execute("SELECT outbox.add_event(%s, 'authorized', %s, 'payment')", [payment, json.dumps({"amount": payment})])
        pause(rng, 0.08)
        c.commit()

    @staticmethod
    def capture(c, rng, payment):
        if c.execute("UPDATE payment SET state = 'captured' WHERE id = %s AND state = 'authorized'", [payment]).rowcount:
            c.execute("SELECT outbox.add_event(%s, 'captured', %s, 'payment')", [payment, json.dumps({"amount": payment})])
        pause(rng, 0.08)
        c.commit()


class Receipts:
    """The consumer, in a process."""

    def __init__(self, kafka, topic, db):
        self.kafka, self.topic, self.db, self.process = kafka, topic, db, None
        db.sql(receipts.SCHEMA)

    def start(self):
        program = Path(receipts.__file__)
        self.process = subprocess.Popen([sys.executable, str(program), self.kafka.bootstrap, self.topic, self.db.pg.dsn(self.db.name)])

    def kill(self):
        assert self.process.poll() is None, "the consumer ended by itself"
        self.process.kill()
        self.process.wait()

    def has_read_all(self):
        """It has handled every record there is, also those that came twice."""
        end = self.kafka.end_offsets(self.topic)[0]
        c = Consumer(receipts.settings(self.kafka.bootstrap))
        try:
            return c.committed([TopicPartition(self.topic, 0)], timeout=10)[0].offset >= end
        finally:
            c.close()


class OftenKilled:
    """Terminates a relay each time the sink has recorded ten batches more."""

    def __init__(self, db, killer):
        self.db, self.killer, self.threads, self.stopped = db, killer, Threads(), False

    def run(self):
        last = 0
        while not self.stopped:
            try:
                batch = self.db.value("SELECT sum(batch)::int FROM outbox.lane_progress")
                if batch >= last + 10:
                    self.killer.terminate()
                    last = batch
            except GONE:
                pass
            time.sleep(0.05)

    def __enter__(self):
        self.threads.start(self.run)

    def __exit__(self, *_):
        self.stopped = True
        self.threads.join()


def payments_with_crashes(make_db, kafka, rng, seed, payments, disturbances):
    db, there = make_db(), make_db(extension=False)
    topic = kafka.create_topic()
    make_sink(db, kafka, topic, lanes=2, batch_size=BATCH)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.relays WHERE state = 'idle'") == 2, 30, "two idle relays")
    writers, killer, consumer = Writers(db, seed, payments), Killer(db, rng), Receipts(kafka, topic, there)
    consumer.start()
    try:
        with OftenKilled(db, killer):
            writers.start()
            for number, what in enumerate(disturbances):
                writers.wait_for((number + 0.5) / len(disturbances))
                if what == "server":
                    killer.immediate_stop()
                elif what == "postmaster":
                    killer.kill_postmaster()
                elif what == "broker":
                    kafka.restart(kill=True)
                else:
                    consumer.kill()
                    consumer.start()
            writers.threads.join()
            nothing_pending(db, 120)
        events = checker.committed(db)
        verdict = checker.check(events, kafka.consume(topic)).must_hold()
        print(f"{killer.terminated} relays terminated, {killer.stops} stops of the server; {verdict}")
        assert len(events) == 2 * payments
        assert killer.terminated, "no relay was terminated: this run shows less than it says"
        eventually(consumer.has_read_all, 60, "the consumer at the end of the topic", interval=0.3)
    finally:
        consumer.kill()
    assert there.value("SELECT count(*) FROM seen") == 2 * payments
    assert there.sql("SELECT count(*), count(DISTINCT payment) FROM receipt") == [(payments, payments)]


def test_each_payment_has_one_receipt_whatever_is_killed(make_db, kafka, rng, seed):
    """B95, B96."""
    payments_with_crashes(make_db, kafka, rng, seed, scaled(100), ["consumer", "server", "broker", "consumer", "server"])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_thousand_payments_with_three_crashes_of_the_server_and_two_of_the_broker(make_db, kafka, rng, seed):
    disturbances = ["server", "broker", "server", "broker", "server", "postmaster", *["consumer"] * 5]
    rng.shuffle(disturbances)
    payments_with_crashes(make_db, kafka, rng, seed, 1000, disturbances)


@pytest.mark.parametrize("lock_keys", ["on", "off"])
def test_with_lock_keys_versions_are_in_order_although_events_are_written_before_their_rows(db, kafka, topic, seed, rng, lock_keys):
    """As ORMs do it: the INSERT of the event is flushed before the UPDATE that waits for its turn. Without lock_keys that is no order."""
    db.sql("CREATE TABLE account (id int PRIMARY KEY, version int NOT NULL); INSERT INTO account SELECT g, 0 FROM generate_series(1, 4) g;"
           " CREATE TABLE change (event_id uuid, version int)")
    make_sink(db, kafka, topic)
    killer, threads, lock, done, each = Killer(db, rng), Threads(), threading.Lock(), [0], scaled(12)

    def change(c, writer):
        account = writer.randrange(4) + 1
        event = c.execute("SELECT outbox.add_event(%s, 'changed', '{}')", [account]).fetchone()[0]
        pause(writer, 0.01)
        c.execute("WITH updated AS (UPDATE account SET version = version + 1 WHERE id = %s RETURNING version)"
                  " INSERT INTO change SELECT %s, version FROM updated", [account, event])
        c.commit()

    def write(number):
        writer, session = random.Random(seed * 1000 + number), Session(db, f"SET outbox.lock_keys = {lock_keys}")
        for _ in range(each):
            session.run(lambda c: change(c, writer))
            with lock:
                done[0] += 1
        session.close()
    for number in range(WRITERS):
        threads.start(write, number)
    for kill in ("terminate", "crash"):
        eventually(lambda: done[0] > WRITERS * each / 3 or threads.errors, 60, "changes")
        getattr(killer, kill)()
    threads.join()
    nothing_pending(db)
    versions = dict(db.sql("SELECT event_id::text, version FROM change"))
    events = [checker.Event(e.event_id, e.key, e.payload, versions[e.event_id]) for e in checker.committed(db)]
    verdict = checker.check(events, kafka.consume(topic))
    if lock_keys == "on":
        verdict.must_hold()
    else:
        assert verdict.disordered and not verdict.lost and not verdict.phantom, str(verdict)
