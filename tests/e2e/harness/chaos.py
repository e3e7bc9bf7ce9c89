"""The chaos run: everything at once, at random, and afterwards a look at what became of each event.

Used by test_chaos.py and by tests/chaos."""

import argparse
import contextlib
import math
import random
import re
import signal
import sys
import time
import uuid
from collections import Counter

import psycopg

from . import checker, env
from .chaos_faults import BATCH, Faults, Sink
from .chaos_load import LIMIT
from .kafka import Kafka
from .mock import Mock
from .postgres import Database, Postgres
from .link import Link
from .wait import eventually

PG_CONF = {"outbox.retention": "1s",  # so segments turn every five seconds, and old ones are truncated
           "max_prepared_transactions": 100}
PARKED = 1_000  # most parked events that a lane sends at a time
BETWEEN = 0.3, 2.2  # seconds from one thing to the next
HEALED = 90     # seconds


STATE = [
    "SELECT * FROM outbox.lag", "SELECT * FROM outbox.relays", "SELECT * FROM outbox.sinks", "SELECT * FROM outbox.lane_progress",
    "SELECT * FROM outbox.lane_changes", "SELECT lane, count(*), min(id), max(id), min(xid::text) FROM outbox.pending GROUP BY lane ORDER BY lane",
    "SELECT reason, topic, count(*), min(id), max(id), min(next_attempt_at) FROM outbox.parked GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT pid, datname, backend_type, state, xact_start, wait_event_type, wait_event, left(query, 80) FROM pg_stat_activity",
    "SELECT pid, locktype, relation::regclass, mode, granted FROM pg_locks WHERE NOT granted",
    "SELECT gid, prepared, database FROM pg_prepared_xacts",
]


class Chaos:
    """One round on servers that are there: databases and topics of its own, a seed, a length."""

    def __init__(self, pg, kafka, link, mock, seed):
        self.pg, self.kafka, self.link, self.mock, self.seed = pg, kafka, link, mock, seed
        self.rng, self.faults = random.Random(seed), None
        self.mark, self.totals, self.all = pg.mark(), Counter(), []

    def run(self, seconds):
        try:
            return self.round(seconds)
        except BaseException:
            for sink in self.all:
                sink.load.stopped = True
            self.tell()
            raise

    def tell(self):
        """What there is to know after a failure."""
        print(f"seed {self.seed}. The story:")
        for line in self.faults.story if self.faults else []:
            print(f"  {line}")
        for sink in self.all:
            for query in STATE:
                with contextlib.suppress(psycopg.Error):
                    for row in sink.db.sql(query):
                        print(sink.name, query.partition(" FROM ")[2].split()[0], row)
        lines = [line for line in self.pg.log_since(self.mark).splitlines() if "outbox" in line]
        print("The server's log:", *lines[-200:], sep="\n", flush=True)

    def round(self, seconds):
        begin = time.monotonic()
        first, second = self.rng.sample(["hold", "skip"], 2)
        address = f"127.0.0.1:{self.link.port}"
        self.sinks = [Sink(self.database(), self.kafka, address, self.seed + 1, 4, 1, 2, first, self.topics(self.kafka, 1)),
                      Sink(self.database(), self.kafka, address, self.seed + 2, 4, 4, 4, second, self.topics(self.kafka, 3))]
        mocked = Sink(self.database(), self.mock, self.mock.bootstrap, self.seed + 3, 2, 2, 2, "hold", self.topics(self.mock, 2),
                      message_max_bytes=LIMIT)
        self.sinks[0].add_hooks(together=5 if self.seed % 2 else 1)
        self.all = [*self.sinks, mocked]
        self.faults = Faults(self.rng, self.pg, self.kafka, self.link, self.mock, self.sinks, mocked)
        for sink in self.all:
            sink.start()
        ready = time.monotonic()
        self.disturb(seconds)
        self.faults.heal()
        for sink in self.all:
            sink.stop()
        healed = time.monotonic()
        for sink in self.all:
            sink.settle(HEALED)
        settled = time.monotonic()
        try:
            self.judge(mocked)
            for sink in self.all:
                self.pg.sql(f"DROP DATABASE {sink.db.name} WITH (FORCE)")
        finally:
            for sink in self.all:
                if sink.hooks:
                    sink.hooks.close()
            print(f"seed {self.seed}: {self.summary()}; made ready in {ready - begin:.0f} s, healed in {healed - ready - seconds:.0f} s, "
                  f"settled in {settled - healed:.0f} s, judged in {time.monotonic() - settled:.0f} s", flush=True)
        return self.totals

    def database(self):
        name = f"chaos_{uuid.uuid4().hex[:10]}"
        self.pg.sql(f"CREATE DATABASE {name}")
        self.pg.sql("CREATE EXTENSION outbox", dbname=name)
        return Database(self.pg, name)

    @staticmethod
    def topics(broker, partitions):
        name = f"c-{uuid.uuid4().hex[:8]}"
        if isinstance(broker, Mock):
            broker.cmd(f"topic {name}-main {partitions}")
            broker.cmd(f"topic {name}-small {partitions}")
        else:
            broker.create_topic(f"{name}-main", partitions)
            broker.create_topic(f"{name}-small", partitions, {"max.message.bytes": str(LIMIT)})
        return name

    def disturb(self, seconds):
        end, due, inject_at = time.monotonic() + seconds, time.monotonic() + 1, time.monotonic() + 1
        while time.monotonic() < end:
            self.faults.run_due()
            if time.monotonic() >= due:
                self.faults.at_random()
                due = time.monotonic() + self.rng.uniform(*BETWEEN)
            if time.monotonic() >= inject_at:
                self.faults.inject()
                inject_at = time.monotonic() + self.rng.uniform(*BETWEEN)
            for sink in self.all:
                for threads in (sink.load.writers, sink.load.others, sink.dba):
                    if threads.errors:
                        raise threads.errors[0]
            time.sleep(0.02)

    # ---- the checker ---------------------------------------------------------------------------------------------

    def judge(self, mocked):
        for sink in self.sinks:
            self.judge_sink(sink)
            if sink.hooks:
                self.totals["repeats (HTTP)"] += sink.hooks.judge(sink.load.written(), sink.lane_batches).repeats
        self.judge_mocked(mocked)
        for sink in self.all:
            eventually(lambda: set(sink.db.sql("SELECT state, pending, last_error FROM outbox.lag")) == {("idle", 0, None)}, HEALED,
                       lambda: f"an idle sink without an error: {sink.db.sql('SELECT * FROM outbox.lag')}")
        strangers = self.faults.strangers(self.pg.log_since(self.mark))
        assert not strangers, "processes ended by themselves:\n" + "\n".join(strangers)
        self.totals["turns of the segments"] += sum(s.db.value("SELECT last_value FROM outbox.turn") for s in self.all)
        self.totals["segments truncated"] += sum(
            s.db.value("SELECT count(*) FROM outbox.segments WHERE truncated_at IS NOT NULL") for s in self.all)

    def judge_sink(self, sink):
        written = sink.load.written()
        self.totals["events"] += len(written)
        expected = self.parked_by_design(sink, written)
        parked = self.parked(sink)
        assert parked == expected, f"parked with the wrong reason, or not parked, or wrongly: {difference(parked, expected)}"
        self.compare(sink, written, left_out=expected)
        self.totals["poison"] += sum(w.poison for w in written)
        self.totals["parked at the end"] += len(expected)
        # The topic takes larger records now: everything goes out, and what waited in its order.
        self.kafka.alter_topic(sink.small, {})

        def empty():
            sink.db.sql("SELECT outbox.redrive('kafka')")  # again, since the broker takes its time to know
            return sink.db.value("SELECT count(*) FROM outbox.parked WHERE sink = 'kafka'") == 0
        eventually(empty, HEALED, lambda: f"everything that was parked is sent: {sink.parked_groups()}", interval=1)
        self.totals["repeats"] += self.compare(sink, written)

    def judge_mocked(self, sink):
        """The mock stores a retried batch twice and checks no sequence: no order, no count of repeats. What it refused it takes now."""
        written = sink.load.written()
        self.totals["events (mock)"] += len(written)

        def exact():
            sink.db.sql("SELECT outbox.redrive('kafka')")
            sink.settle(HEALED)
            return self.parked(sink) == self.parked_by_design(sink, written)
        eventually(exact, HEALED, lambda: f"parked: {difference(self.parked(sink), self.parked_by_design(sink, written))}", interval=1)
        self.compare(sink, written, self.parked_by_design(sink, written), ordered=False)
        self.totals["poison (mock)"] += sum(w.poison for w in written)

    @staticmethod
    def parked(sink):
        return dict(sink.db.sql("SELECT event_id::text, reason FROM outbox.parked WHERE sink = 'kafka'"))

    @staticmethod
    def parked_by_design(sink, written):
        """The poison, and with `hold` what comes after one in its key: {event_id: reason}."""
        expected, held = {}, set()
        for w in sorted(written, key=lambda w: w.event.order):
            key = (w.topic, w.event.key)
            if key in held:
                expected[w.event.event_id] = "behind"
            elif w.poison:
                expected[w.event.event_id] = "dead"
                if sink.on_poison == "hold" and w.event.key is not None:
                    held.add(key)
        return expected

    def compare(self, sink, written, left_out=(), ordered=True):
        """Each topic with what was written for it. Returns how many repeats there were."""
        repeats = 0
        self.totals["repeats allowed"] += BATCH * sink.lane_batches if ordered and not left_out else 0
        for topic in {sink.topic, sink.small, *sink.late_topics}:
            here = [w for w in written if (w.topic or sink.topic) == topic and w.event.event_id not in left_out]
            records = sink.broker.consume(topic)
            out_of_turn = {w.event.event_id for w in here if w.poison} if sink.on_poison == "skip" else set()
            verdict = checker.check([w.event for w in here], records, ordered=ordered and not out_of_turn)
            if topic == sink.topic or not ordered:
                most = BATCH
            else:
                most = PARKED
            try:
                verdict.must_hold(repeats=most * sink.lane_batches if ordered else None)
                if out_of_turn:
                    checker.check([w.event for w in here if not w.poison], [r for r in records if checker.event_id(r) not in out_of_turn]).must_hold()
            except AssertionError as e:
                raise AssertionError(f"topic {topic}: {e}") from e
            repeats += verdict.repeats
        return repeats

    def unusual_lines(self):
        """What relays had to say, but for outages and parked events."""
        lines = re.findall(r"outbox (?:relay|launcher|scout) (?:WARNING|ERROR|FATAL|PANIC): +(.*)", self.pg.log_since(self.mark))
        return Counter(re.sub(r"\d+", "N", line) for line in lines
                       if not re.search(r" is down: | parked \d+ events|terminating |connection to client lost", line))

    def summary(self):
        self.totals["late topics"] += sum(len(s.late_topics) for s in self.all)
        parts = [f"{n} {what}" for what, n in self.totals.items()]
        parts.append("faults " + ", ".join(f"{what} {n}" for what, n in sorted(self.faults.counts.items())))
        parts.append("injected " + ", ".join(f"{what} {n}" for what, n in sorted(self.faults.injected.items())))
        unusual = self.unusual_lines()
        if unusual:
            parts.append("in the log: " + ", ".join(f"{n} x {what}" for what, n in unusual.items()))
        failed = sum((s.failed for s in self.all), Counter())
        if failed:
            parts.append("DBA's statements that came to nothing " + ", ".join(f"{what} {n}" for what, n in failed.items()))
        return "; ".join(parts)


def difference(parked, expected):
    wrong = {e: (parked.get(e), expected.get(e)) for e in {*parked, *expected} if parked.get(e) != expected.get(e)}
    return f"{len(wrong)} events, (is, should be): {dict(list(wrong.items())[:5])}"


@contextlib.contextmanager
def servers():
    """A PostgreSQL, a Kafka whose relays come through a link, and a mock broker."""
    with Postgres(conf=PG_CONF) as pg, Kafka() as kafka, Link() as link, Mock() as mock:
        link.target = kafka.add_listener("RELAYS", link.port)
        yield pg.start(), kafka.start(), link, mock.start()


def run(seconds, seed, longest=120):
    """Rounds of at most `longest` seconds, each with the next seed. Returns the seeds of those that failed."""
    totals, failed, rounds, there = Counter(), [], math.ceil(seconds / longest), None
    with contextlib.ExitStack() as stack:
        for number in range(seed, seed + rounds):
            there = there or stack.enter_context(servers())
            try:
                totals += Chaos(*there, number).run(seconds / rounds)
            except AssertionError as e:
                print(f"seed {number} failed: {e}", flush=True)
                failed.append(number)
                stack.close()  # the next round begins with new servers
                there = None
    print(f"{rounds} rounds: " + ", ".join(f"{n} {what}" for what, n in totals.items()) + f"; failed: {failed or 'none'}", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(prog="tests/chaos", description="Everything at once, at random, and a look at each event afterwards.")
    parser.add_argument("--seconds", type=float, default=120, help="how long things go wrong, healing and checking not counted (120)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="of the first round")
    parser.add_argument("--round", type=float, default=120, help="seconds of a round (120)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that the servers are stopped
    env.sweep()
    sys.exit(bool(run(options.seconds, options.seed, options.round)))


if __name__ == "__main__":
    main()
