"""What goes wrong during a chaos run: one thing every other second, and several at a time where one lasts."""

import heapq
import itertools
import queue
import random
import re
import signal
import time
from collections import Counter
from datetime import datetime, timezone
from types import SimpleNamespace

import psycopg
from confluent_kafka import KafkaException

from . import env
from .chaos_hooks import Hooks
from .chaos_load import ChaosLoad
from .wait import eventually
from .workload import GONE, Killer, Threads, make_sink, nothing_pending, relays

BATCH = 50                      # of a lane, in events; small, so that there are many
DELIVERY_TIMEOUT = 3.0          # seconds; the broker is away for less than that, or for more
TABLES = ["outbox.lanes", "outbox.progress", "outbox.counters", "outbox.parked_events", "outbox.sinks", "outbox.segments", "outbox.scheduled",
          *(f"outbox.events_{k}" for k in range(16))]
# Codes of each class of core/verdict.cpp; _TRANSPORT closes the connection.
INJECTED = {
    "Produce": ["_TRANSPORT", "UNKNOWN_TOPIC_OR_PART", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "TOPIC_AUTHORIZATION_FAILED",
                "THROTTLING_QUOTA_EXCEEDED", "POLICY_VIOLATION", "CLUSTER_AUTHORIZATION_FAILED", "UNSUPPORTED_VERSION", "MSG_SIZE_TOO_LARGE",
                "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP", "INVALID_MSG", "OUT_OF_ORDER_SEQUENCE_NUMBER",
                "INVALID_PRODUCER_EPOCH", "UNKNOWN_PRODUCER_ID", "NOT_LEADER_FOR_PARTITION", "REQUEST_TIMED_OUT", "UNKNOWN"],
    "InitProducerId": ["_TRANSPORT", "CLUSTER_AUTHORIZATION_FAILED", "COORDINATOR_LOAD_IN_PROGRESS"],
    "Metadata": ["_TRANSPORT"],
    "ApiVersions": ["_TRANSPORT"],
}


class Sink:
    """A database with its sink, its writers and its impatient DBA, who does one thing after the other."""

    def __init__(self, db, broker, bootstrap, seed, writers, lanes, most_lanes, on_poison, name, **options):
        self.db, self.broker, self.name = db, broker, name
        self.most_lanes, self.on_poison = most_lanes, on_poison
        self.topic, self.small = f"{name}-main", f"{name}-small"
        self.late_topics, self.later = [], itertools.count(1)
        self.load, self.killer = ChaosLoad(db, seed, writers, self.small), Killer(db, random.Random(seed))
        self.lane_batches = 0  # as many batches may have come twice
        self.actions, self.dba, self.failed = queue.Queue(), Threads(), Counter()
        self.hooks = None  # an HTTP sink beside it
        make_sink(db, SimpleNamespace(bootstrap=bootstrap), self.topic, batch_size=BATCH, lanes=lanes, on_poison=on_poison, stall_timeout="1s",
                  delivery_timeout=f"{int(DELIVERY_TIMEOUT)}s", linger_ms=5, **options)

    def add_hooks(self, together):
        self.hooks = Hooks(self.db, 2, BATCH, together)

    @property
    def names(self):
        return ["kafka", "hooks"] if self.hooks else ["kafka"]

    def start(self):
        self.load.start()
        self.dba.start(self.act)

    def ask(self, statement):
        """Of the DBA. What the server's end, a time-out or somebody else's lock keeps from happening does not happen."""
        self.actions.put(statement)

    def act(self):
        while statement := self.actions.get():
            try:
                with self.db.connect(options="-c lock_timeout=3s -c statement_timeout=20s") as c:
                    c.execute(statement)
            except GONE as e:
                self.failed[e.sqlstate or "connection"] += 1

    def stop(self):
        """The writers end, and the DBA."""
        self.load.stop()
        self.actions.put(None)
        self.dba.join()
        self.db.sql("SELECT outbox.resume('kafka')")
        if self.hooks:
            self.hooks.resume()

    def may_repeat(self, lanes=None):
        self.lane_batches += lanes or self.most_lanes

    def missing_topics(self):
        there = self.broker.topics()
        return [t for t in self.late_topics if t not in there]

    def make_due(self):
        """What waits for its next try need not wait for long."""
        for event, in self.db.sql("SELECT event_id::text FROM outbox.parked WHERE sink = 'kafka' AND reason = 'retry' AND next_attempt_at > now() + interval '1 second'"):
            try:
                self.db.sql("SELECT outbox.redrive('kafka', %s::uuid)", [event])
            except psycopg.errors.NoDataFound:
                pass  # it went out meanwhile

    def settle(self, timeout):
        """Until nothing is pending, scheduled or tried again any more."""
        nothing_pending(self.db, timeout)
        eventually(lambda: self.db.value("SELECT count(*) FROM outbox.scheduled") == 0, timeout, "nothing scheduled", interval=0.2)
        nothing_pending(self.db, timeout)
        if self.hooks:
            self.hooks.settle(timeout)

        def parked():
            self.make_due()
            # A key's row that waits behind another: it is tried when there is none before it that is not dead.
            return self.db.value(f"SELECT count(*) FROM outbox.parked p WHERE sink = 'kafka' AND (reason = 'retry' OR reason = 'behind' AND NOT EXISTS ("
                                 " SELECT FROM outbox.parked f WHERE f.sink = 'kafka' AND f.reason = 'dead' AND (f.topic, f.aggregate_id) = (p.topic, p.aggregate_id)"
                                 f" AND f.id < p.id AND {'true' if self.on_poison == 'hold' else 'false'}))") == 0
        eventually(parked, timeout, lambda: f"nothing tried again: {self.parked_groups()}", interval=0.3)

    def parked_groups(self):
        return self.db.sql("SELECT reason, topic, count(*), min(attempts), max(last_error) FROM outbox.parked WHERE sink = 'kafka' GROUP BY 1, 2")


class Faults:
    """at_random() does one thing; what ends by itself ends in run_due(). Everything happens in the caller's thread, but for what the
    DBAs are asked to do."""

    # Drawn like cards: each kind once, then each as often as this in every deck.
    KINDS = {"terminate": 3, "cancel": 1, "freeze_relay": 1, "crash": 2, "launcher_crash": 1, "launcher_terminate": 1, "immediate_restart": 1,
             "broker_kill": 2, "broker_freeze": 2, "stall": 1, "drop": 3, "slow": 2,
             "poison": 3, "unknown_topic": 2, "bulk": 2,
             "pause": 2, "off": 1, "redrive": 2, "alter": 2, "lanes": 3, "vacuum_full": 2, "lock": 2}
    QUIET = {"poison", "unknown_topic", "bulk", "pause", "off", "redrive", "alter", "lanes", "vacuum_full", "lock"}
    BROKER = {"broker_kill", "broker_freeze", "stall", "slow"}

    def __init__(self, rng, pg, kafka, link, mock, sinks, mocked):
        self.rng, self.pg, self.kafka, self.link, self.mock, self.sinks, self.mocked = rng, pg, kafka, link, mock, sinks, mocked
        self.counts, self.later, self.order = Counter(), [], itertools.count()
        self.deck, self.story = [], []
        self.broker_busy, self.injected, self.crashed = False, Counter(), []

    def at_random(self):
        if not self.deck:
            self.deck = [kind for kind, times in self.KINDS.items() for _ in range(times if self.counts else 1)]
            self.rng.shuffle(self.deck)
        kind = next((k for k in self.deck if not (self.broker_busy and k in self.BROKER)), None)
        if kind is None:  # those that are left are the broker's, which has enough
            return
        self.deck.remove(kind)
        self.counts[kind] += 1
        self.tell(kind)
        # A planned stop repeats what the broker has not acknowledged in time.
        if kind not in self.QUIET or self.broker_busy and kind in ("pause", "off", "alter", "lanes"):
            for sink in self.sinks:
                sink.may_repeat()
        getattr(self, kind)()

    def tell(self, what):
        self.story.append(f"{datetime.now(timezone.utc):%H:%M:%S.%f} {what}")

    def after(self, seconds, action):
        heapq.heappush(self.later, (time.monotonic() + seconds, next(self.order), action))

    def run_due(self, everything=False):
        while self.later and (everything or self.later[0][0] <= time.monotonic()):
            heapq.heappop(self.later)[2]()

    def any_sink(self):
        return self.rng.choice([*self.sinks, self.mocked])

    # ---- processes -----------------------------------------------------------------------------------------------

    def terminate(self):
        self.any_sink().killer.terminate()

    def cancel(self):
        sink = self.any_sink()
        sink.db.sql("SELECT pg_cancel_backend(%s)", [sink.killer.victim()])

    def freeze_relay(self):
        pid = self.any_sink().killer.victim()
        self.crashed.append(pid)  # the postmaster kills what does not end in time
        self.pg.signal(pid, signal.SIGSTOP)
        self.after(self.rng.uniform(0.5, 4), lambda: env.send(pid, signal.SIGCONT))

    def crash(self):
        killer = self.any_sink().killer
        self.kill(killer.victim())

    def kill(self, pid):
        self.crashed.append(pid)
        self.sinks[0].killer.crash(pid)

    def launcher(self):
        return eventually(lambda: self.pg.value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox launcher'"), 30,
                          "a launcher", ignore=GONE)

    def launcher_crash(self):
        self.kill(self.launcher())

    def launcher_terminate(self):
        self.pg.sql("SELECT pg_terminate_backend(%s)", [self.launcher()])

    def immediate_restart(self):
        self.sinks[0].killer.immediate_stop()

    # ---- the broker and the way there ----------------------------------------------------------------------------

    def broker_kill(self):
        self.kafka.kill()
        self._busy(self.rng.uniform(0, 1.5 * DELIVERY_TIMEOUT), self._broker_up)

    def _broker_up(self):
        if not self.kafka.running:
            self.kafka.start(wait=False)
        try:
            self.kafka.admin().list_topics(timeout=0.3)
        except KafkaException:
            self._busy(0.3, self._broker_up)

    def broker_freeze(self):
        self.kafka.freeze()
        self._busy(self.rng.uniform(1.2, 2) * DELIVERY_TIMEOUT, self.kafka.resume)

    def stall(self):
        self.link.stall()
        self._busy(self.rng.uniform(0.5, 2) * DELIVERY_TIMEOUT, self.link.clear)

    def slow(self):
        self.link.slow(self.rng.uniform(0, 0.5), self.rng.choice([20_000, 100_000, None]))
        self._busy(self.rng.uniform(2, 5), self.link.clear)

    def drop(self):
        self.link.drop()

    def _busy(self, seconds, then):
        self.broker_busy = True

        def over():
            self.broker_busy = False
            then()
        self.after(seconds, over)

    # ---- events --------------------------------------------------------------------------------------------------

    def poison(self):
        for sink in [*self.sinks, self.mocked]:
            sink.load.poison += self.rng.choice([1, 2, 4])

    def unknown_topic(self):
        sink = self.rng.choice(self.sinks)
        topic = f"{sink.name}-late-{next(sink.later)}"
        sink.late_topics.append(topic)
        sink.load.late_topics.append(topic)
        self.after(self.rng.uniform(1, 8), lambda: self.create(topic))

    def create(self, topic):
        """As soon as the broker can."""
        if not self.kafka.running or self.broker_busy:
            self.after(0.5, lambda: self.create(topic))
        else:
            self.kafka.create_topic(topic)

    def bulk(self):
        sink = self.any_sink()
        sink.load.others.start(sink.load.bulk_load, random.Random(self.rng.random()), f"bulk{next(self.order)}-",
                               self.rng.choice([50, 500, 1500]))

    # ---- operators -----------------------------------------------------------------------------------------------

    def pause(self):
        sink = self.any_sink()
        name = self.rng.choice(sink.names)
        sink.ask(f"SELECT outbox.pause('{name}')")
        self.after(self.rng.uniform(0.2, 4), lambda: sink.ask(f"SELECT outbox.resume('{name}')"))

    def off(self):
        self.publish("off")
        self.after(self.rng.uniform(0.2, 3), lambda: self.publish("on"))

    def publish(self, value):
        self.pg.configure(outbox__publish=value)
        self.pg.reload()

    def redrive(self):
        self.any_sink().ask("SELECT outbox.redrive('kafka')")

    def alter(self):
        self.any_sink().ask(f"ALTER SERVER kafka OPTIONS (SET linger_ms '{self.rng.choice([0, 5, 50])}')")

    def lanes(self):
        sink = self.rng.choice(self.sinks)
        sink.ask(f"ALTER SERVER {self.rng.choice(sink.names)} OPTIONS (SET lanes '{self.rng.randint(1, sink.most_lanes)}')")

    def vacuum_full(self):
        self.any_sink().ask(f"VACUUM FULL {self.rng.choice(TABLES)}")

    def lock(self):
        table, seconds = self.rng.choice(TABLES), self.rng.uniform(0.2, 1.5)
        self.any_sink().ask(f"BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({seconds}); COMMIT")

    # ---- injected errors -----------------------------------------------------------------------------------------

    def inject(self):
        how = self.rng.choice(["errors"] * 6 + ["rtt", "down", "late"] + ["http"] * 6)
        if how == "http":
            how = self.rng.choice([s for s in self.sinks if s.hooks]).hooks.inject(self.rng)
        elif how == "rtt":
            self.mock.cmd(f"rtt 1 {self.rng.choice([100, 1500, 4000])}")
            self.after(self.rng.uniform(1, 5), lambda: self.mock.cmd("rtt 1 0"))
        elif how == "down":
            self.mock.cmd("down 1")
            self.after(self.rng.uniform(0.2, 5), lambda: self.mock.cmd("up 1"))
        elif how == "late":
            self.mock.cmd("push_error_rtts 1 Produce 0:4000")
        else:
            api = self.rng.choice(["Produce"] * 9 + ["InitProducerId", "Metadata", "ApiVersions"])
            code = self.rng.choice(INJECTED[api])
            self.mock.cmd(f"push_errors {api} " + ",".join([code] * self.rng.choice([1, 1, 1, 2, 5])))
            how = f"{api} {code}"
        self.tell(f"  {how}")
        self.injected[how] += 1

    # ---- and afterwards ------------------------------------------------------------------------------------------

    def heal(self):
        while self.later:
            self.run_due(everything=True)
            time.sleep(0.05)
        self.link.clear()
        self.kafka.resume()
        if not self.kafka.running:
            self.kafka.start(wait=False)
        self.kafka.wait_ready()
        for api in INJECTED:
            self.mock.cmd(f"clear_errors {api}")
        for sink in self.sinks:
            if sink.hooks:
                sink.hooks.server.heal()
        for sink in [*self.sinks, self.mocked]:
            for topic in sink.missing_topics():
                self.kafka.create_topic(topic)

    def strangers(self, log):
        """Processes of the server that ended by a signal that nobody here sent."""
        return [line for line in log.splitlines() if (found := re.search(r"\(PID (\d+)\) was terminated by signal (\d+)", line))
                and not (int(found[1]) in self.crashed and found[2] == "9")]
