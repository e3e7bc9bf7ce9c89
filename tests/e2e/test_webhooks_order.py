"""Each key in its order, whatever is refused, killed and started again meanwhile."""
import random
import threading

import pytest
from harness import checker
from harness.factor import patience, scaled
from harness.wait import eventually
from harness.webhooks import lag, make_webhook_sink, write
from harness.workload import Killer, Session, Threads, nothing_pending, pause, relays

PG_FLAVOUR = "faults"
PG_CONF = {"outbox.retry_scale": "0.0001", "outbox.poll_interval": "100ms"}
CONCURRENCY = 8


class Writers:
    """Writers whose events of a key take turns, since they lock its row first."""

    def __init__(self, db, seed, count=4, keys=30):
        self.db, self.seed, self.keys, self.over, self.threads = db, seed, keys, threading.Event(), Threads()
        db.sql("CREATE TABLE key AS SELECT n AS key, 0 AS version FROM generate_series(0, %s) n" % (keys - 1))
        db.sql("CREATE UNIQUE INDEX ON key (key)")
        for number in range(count):
            self.threads.start(self.write, number)

    def write(self, number):
        rng, session = random.Random(self.seed * 10 + number), Session(self.db)

        def body(c):
            key = rng.randrange(self.keys)
            c.execute("SELECT outbox.add_event(key::text, %s, json_build_object('version', version)) FROM"
                      " (SELECT * FROM key WHERE key = %s FOR UPDATE) k", ["bad" if rng.random() < 0.005 else "good", key])
            c.commit()
        while not self.over.is_set():
            session.run(body)
            pause(rng, 0.01)
        session.close()

    def stop(self):
        self.over.set()
        self.threads.join()


@pytest.mark.parametrize("batch", [{}, {"batch": 7, "batch_size": 3000}], ids=["alone", "together"])
def test_order_holds_across_retries_and_restarts(db, hooks, rng, seed, batch):
    """Endpoint's faults, events' faults that heal at the third attempt, relays that are terminated, and kill -9."""
    make_webhook_sink(db, hooks, concurrency=CONCURRENCY, lanes=2, request_timeout="1s", **batch)
    hooks.answer(422, type="bad")
    hooks.answer(204, type="bad", first=3)
    writers, killer = Writers(db, seed), Killer(db, rng)
    for number in range(scaled(4)):
        # Few enough one after the other: each doubles the pause before the next probe.
        hooks.answer(503, times=rng.choice([1, 3]))
        hooks.answer(how=rng.choice(["reset", "half_close", "never"]), times=rng.choice([1, 2]))
        asked = len(hooks.requests)
        eventually(lambda: len(hooks.requests) > asked + 50, 60, "requests")
        killer.crash() if number % 2 else killer.terminate()
    writers.stop()
    # What is left of the endpoint's faults would meet parked events alone, whose pauses grow to half a minute.
    hooks.heal()
    hooks.answer(422, type="bad")
    hooks.answer(204, type="bad", first=3)
    nothing_pending(db)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, patience(60), lambda: f"nothing is parked: {db.sql('SELECT * FROM outbox.parked')}")
    events = checker.committed(db)
    verdict = checker.check(events, hooks.records()).must_hold()
    assert all(r.verified for r in hooks.requests)
    print(verdict, len(hooks.requests), "requests")


def test_a_planned_stop_repeats_nothing(db, hooks):
    make_webhook_sink(db, hooks)
    hooks.default.delay = 0.01
    for _ in range(scaled(2)):
        write(db, 500)
        asked = len(hooks.accepted)
        eventually(lambda: len(hooks.accepted) > asked + 50, 20, "it is at work", interval=0.005)
        db.pg.restart()
    nothing_pending(db)
    checker.check(checker.committed(db), hooks.records()).must_hold(repeats=0)


def test_a_crash_repeats_at_most_what_was_in_flight_and_with_the_same_bytes(db, hooks, rng):
    make_webhook_sink(db, hooks, batch_size=50)
    hooks.default.delay = 0.005
    write(db, 500)
    eventually(lambda: len(hooks.accepted) > 100, 20, "it is at work", interval=0.005)
    killer = Killer(db, rng)
    killer.crash()
    nothing_pending(db)
    checker.check(checker.committed(db), hooks.records()).must_hold(repeats=50)


def retry_scale(pg, value):
    pg.configure(outbox__retry_scale=value)
    pg.reload()


def test_an_event_that_is_refused_for_ever_runs_through_its_schedule_by_itself(db, hooks):
    hooks.answer(400, type="bad", body=b"never")
    make_webhook_sink(db, hooks)
    retry_scale(db.pg, "0.00001")
    db.sql("SELECT outbox.add_event('k', 'bad', '1')")
    db.sql("SELECT outbox.add_event('k', 'good', '2')")
    write(db, 20)
    eventually(lambda: db.sql("SELECT reason, attempts FROM outbox.parked ORDER BY id") == [("dead", 10), ("behind", 0)], 60,
               lambda: f"dead after ten: {db.sql('SELECT reason, attempts, last_error FROM outbox.parked')}")
    assert len(hooks.of(key="k")) == 10 and len(hooks.accepted) == 20
    assert lag(db)[2:] == (1, 1)
    retry_scale(db.pg, PG_CONF["outbox.retry_scale"])
    hooks.heal()
    db.sql("SELECT outbox.redrive('hooks')")
    hooks.wait_for(22)
    assert [r.data for r in hooks.accepted.values() if r.key == "k"] == [b"1", b"2"]


@pytest.mark.parametrize("signal", ["terminate", "crash"])
def test_a_relay_that_dies_in_an_outage_is_followed_by_one_that_goes_on(db, hooks, rng, signal):
    make_webhook_sink(db, hooks)
    write(db, 20)
    nothing_pending(db)
    hooks.answer(how="never")
    write(db, 40)
    eventually(lambda: hooks.in_flight == CONCURRENCY, 20, "requests hang")
    old = relays(db)
    getattr(Killer(db, rng), signal)()
    eventually(lambda: relays(db) not in ([], old), 30, "another relay", ignore=(Exception,))
    hooks.heal()
    nothing_pending(db)
    assert len(hooks.accepted) == 60
    checker.check(checker.committed(db), hooks.records()).must_hold()
    assert lag(db)[2:] == (0, 0)
