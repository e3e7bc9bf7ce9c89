"""The HTTP sink of a chaos run: beside a Kafka sink, in the same database, so it gets what that gets and goes through the same faults; and
its endpoint answers badly now and then."""

import psycopg

from . import checker
from .wait import eventually
from .webhooks import Webhooks, make_webhook_sink

CONCURRENCY, TIMEOUT = 8, 2.0
STATUS = [301, 401, 404, 408, 421, 425, 429, 500, 502, 503, 504]
REFUSED = [400, 409, 413, 422]
HOW = ["reset", "close", "half_close", "cut", "never", "trickle"]


class Hooks:
    def __init__(self, db, lanes, batch, together):
        """`together`: so many events go in a request."""
        self.db, self.batch, self.together, self.may_repeat = db, batch, together, 0
        self.server = Webhooks()
        self.server.start()
        make_webhook_sink(db, self.server, lanes=lanes, batch_size=batch, concurrency=CONCURRENCY, request_timeout=f"{int(TIMEOUT)}s", retry_after_limit="2s", batch=together)

    def inject(self, rng):
        """The next few requests are answered badly. Returns what it is."""
        what = rng.choice(["status"] * 3 + ["refused", "how", "how", "drop", "slow"])
        times = rng.choice([1, 1, 1, 2, 5])
        if what == "status":
            self.server.answer(what := rng.choice(STATUS), times=times, headers={"Retry-After": "1"} if rng.random() < 0.3 else {})
        elif what == "refused":
            self.server.answer(what := rng.choice(REFUSED), times=1)
        elif what == "how":
            # A good status whose answer breaks off: the event has been taken, or not, and comes again.
            self.server.answer(200, times=times, how=(what := rng.choice(HOW)), body=b"x" * 100)
            self.may_repeat += times * self.together
        elif what == "drop":
            self.server.drop()
            self.may_repeat += CONCURRENCY * self.together
        else:
            self.server.answer(204, times=20 * times, delay=0.2)
        return f"HTTP {what}"

    def resume(self):
        self.db.sql("SELECT outbox.resume('hooks')")

    def settle(self, timeout):
        """What was refused need not wait for its next attempt for long."""
        self.server.heal()

        def none():
            for event, in self.db.sql("SELECT event_id::text FROM outbox.parked WHERE sink = 'hooks' AND reason <> 'behind'"):
                try:
                    self.db.sql("SELECT outbox.redrive('hooks', %s::uuid)", [event])
                except psycopg.errors.NoDataFound:
                    pass  # it went out meanwhile
            return self.db.value("SELECT count(*) FROM outbox.parked WHERE sink = 'hooks'") == 0
        eventually(none, timeout, lambda: f"nothing is parked for the endpoint: {self.db.sql(GROUPS)}", interval=0.5)

    def judge(self, written, lane_batches):
        """Everything that was committed, whatever its topic, in the order of each key."""
        verdict = checker.check([w.event for w in written], self.server.records())
        verdict.must_hold(repeats=self.batch * lane_batches + self.may_repeat)
        assert all(r.verified for r in self.server.requests), "a signature was not right"
        bodies = {}
        assert all(bodies.setdefault(r.id, r.body) == r.body for r in self.server.requests), "a request came again with other bytes"
        return verdict

    def close(self):
        self.server.close()


GROUPS = "SELECT reason, count(*), min(attempts), max(last_error) FROM outbox.parked WHERE sink = 'hooks' GROUP BY 1"
