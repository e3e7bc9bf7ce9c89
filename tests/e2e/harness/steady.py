"""Writers at a steady rate for a while, beside retention: what the log's size, the writers and the relay do meanwhile."""

import statistics
import threading
import time

from confluent_kafka import Consumer, TopicPartition

from .workload import Threads

GROUP = 8  # events of a transaction


def p(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


class Arrivals:
    """When each event came to a consumer. A value is the event's number."""

    def __init__(self, kafka, topic):
        self.at, self.times, self.over = {}, 0, threading.Event()
        self.consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "steady", "enable.auto.commit": False, "log_level": 0})
        self.consumer.assign([TopicPartition(topic, 0, 0)])
        self.threads = Threads()
        self.threads.start(self.listen)

    def listen(self):
        while not self.over.is_set():
            message = self.consumer.poll(0.1)
            if message is not None and not message.error():
                self.times += 1
                self.at.setdefault(int(message.value()), time.time())
        self.consumer.close()

    def close(self):
        self.over.set()
        self.threads.join()


class Load:
    """`rate` events a second by four writers. Keeps (when, how long) of each transaction, and when each event was committed."""

    WRITERS = 4

    def __init__(self, db, rate):
        self.db, self.pause = db, self.WRITERS * GROUP / rate
        self.transactions, self.committed, self.sizes, self.pids = [], {}, [], set()
        self.stopped, self.threads = threading.Event(), Threads()

    def start(self):
        self.begin = time.time()
        for number in range(self.WRITERS):
            self.threads.start(self.write, number)
        self.threads.start(self.watch)
        return self

    def write(self, number):
        with self.db.connect() as c:
            self.pids.add(c.info.backend_pid)
            n, due = number * 10_000_000, time.perf_counter()
            while not self.stopped.is_set():
                due += self.pause
                time.sleep(max(0, due - time.perf_counter()))
                due = max(due, time.perf_counter() - 1)  # it does not catch up on more than a second
                begin = time.perf_counter()
                c.execute("SELECT count(outbox.add_event('k' || g %% 50, 'written', g::text)) FROM generate_series(%s::int, %s::int) g", [n, n + GROUP - 1])
                now = time.time()
                self.transactions.append((now, time.perf_counter() - begin))
                self.committed.update((k, now) for k in range(n, n + GROUP))
                n += GROUP

    def watch(self):
        """Once a second (seconds since the start, events kept, bytes, segments in use)."""
        with self.db.connect() as c:
            while not self.stopped.is_set():
                kept = c.execute("SELECT sum(pg_total_relation_size(c.oid)), (SELECT count(*) FROM outbox.segments WHERE truncated_at IS NULL)"
                                 " FROM pg_class c WHERE c.relname ~ '^events_[0-9]+$' AND c.relkind = 'r'").fetchone()
                self.sizes.append((time.time() - self.begin, int(kept[0]), kept[1]))
                self.stopped.wait(1)

    def stop(self):
        self.stopped.set()
        self.threads.join()

    def turns(self):
        """When segments were turned or truncated."""
        return [at for at, in self.db.sql("SELECT extract(epoch FROM t)::float8 FROM outbox.segments, LATERAL (VALUES (closed_at), (truncated_at)) v(t)"
                                          " WHERE t IS NOT NULL")]

    def report(self, arrivals):
        """{who: (p50, p99) in ms, in the second around a turn or truncation, and otherwise}."""
        near = {int(at) + d for at in self.turns() for d in (-1, 0, 1)}
        relay = [(at, arrivals.at[k] - at) for k, at in self.committed.items() if at > self.begin + 5]  # it had time to start
        found = {}
        for who, times in (("writer", self.transactions), ("relay", relay)):
            for when, chosen in (("at turns", [t for at, t in times if int(at) in near]), ("else", [t for at, t in times if int(at) not in near])):
                if chosen:
                    found[f"{who}, {when}"] = (round(1000 * statistics.median(chosen), 2), round(1000 * p(chosen, 0.99), 2), len(chosen))
        return found
