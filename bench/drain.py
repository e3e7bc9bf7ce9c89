#!/usr/bin/env python3
"""How fast a relay drains a backlog to a real Kafka broker, beside a bare librdkafka program (bare_producer.cpp) with the same library,
topic, properties, key, headers and bytes, at its best linger.ms.

    tests/env/install.sh && $OUTBOX_ENV/venv/bin/python bench/drain.py --events 1000000

Both are counted after their first second. They take turns; the figures are medians. Servers and brokers are the tests' (tests/README.md).
"""
import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/e2e"))

from harness import env  # noqa: E402
from harness.kafka import Kafka  # noqa: E402
from harness.postgres import Postgres  # noqa: E402

SIZE = 300
LINGERS = (0, 5, 50)
# What a sink sets by itself; linger.ms is each side's own.
PROPERTIES = {"enable.idempotence": "true", "enable.gapless.guarantee": "true", "acks": "all", "message.timeout.ms": 0,
              "partitioner": "murmur2_random", "socket.nagle.disable": "true", "socket.keepalive.enable": "true",
              "allow.auto.create.topics": "false", "log_level": 0}
FILL = """
    INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)
    SELECT 'order', 'key-' || g %% 1000, 'order_captured', to_json(repeat('x', %s)) FROM generate_series(1, %s) g
"""


class Bare:
    def __init__(self):
        self.program = env.ENV / "build" / "bare_producer"
        subprocess.run(["g++", "-std=c++20", "-O2", HERE / "bare_producer.cpp", "-lrdkafka", "-o", self.program], check=True)

    def run(self, kafka, events, linger):
        properties = PROPERTIES | {"bootstrap.servers": kafka.bootstrap, "linger.ms": linger}
        done = subprocess.run([self.program, kafka.create_topic(), str(events), str(SIZE), *(f"{k}={v}" for k, v in properties.items())],
                              check=True, capture_output=True, text=True)
        rate, cpu = map(float, done.stdout.split())
        return rate, cpu


def threads(pid):
    """Seconds of CPU of the process's own thread and of the others, which are librdkafka's."""
    seconds = {}
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        fields = stat.read_text().rsplit(")", 1)[1].split()
        seconds[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds.pop(pid), sum(seconds.values())


def drain(pg, kafka, events, options):
    """Events a second, and microseconds of CPU per event of the relay's own thread and of librdkafka's."""
    pg.sql("DROP SERVER IF EXISTS kafka CASCADE")
    pg.sql("SELECT outbox.forget(name) FROM outbox.sinks")
    more = "".join(f", {k} '{v}'" for k, v in options)
    topic = kafka.create_topic()
    with pg.connect() as c:
        c.execute(f"""CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka
                      OPTIONS (bootstrap_servers '{kafka.bootstrap}', topic '{topic}', format 'payload'{more})""")

        def progress():
            return time.monotonic(), *(c.execute("SELECT coalesce(sum(published), 0)::bigint, max(pid) FROM outbox.relays").fetchone())
        now, done, pid = progress()
        while done == 0:
            time.sleep(0.01)
            now, done, pid = progress()
        began, first, cpu = now, None, None
        while done < events:
            time.sleep(0.02)
            now, done, pid = progress()
            if first is None and now - began >= 1:
                first, cpu = (now, done), threads(pid)
    if first is None:
        raise SystemExit("it was over within a second: more events are needed")
    own, library = (1e6 * (b - a) / (done - first[1]) for a, b in zip(cpu, threads(pid), strict=True))
    return (done - first[1]) / (now - first[0]), own, library


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("options", nargs="*", metavar="option=value", help="more options of the sink")
    args = parser.parse_args()
    options = [o.split("=", 1) for o in args.options]
    bare = Bare()
    pg = Postgres(conf={"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"})
    with pg.start(), Kafka(heap="1g").start() as kafka:
        pg.sql("CREATE EXTENSION outbox")
        pg.sql(FILL, [SIZE - 2, args.events])
        pg.sql("VACUUM ANALYZE outbox.events")
        pg.sql("CHECKPOINT")
        relay, others = [], {linger: [] for linger in LINGERS}
        for number in range(args.rounds):
            for linger in LINGERS:
                others[linger].append(bare.run(kafka, args.events, linger))
            relay.append(drain(pg, kafka, args.events, options))
            print(f"round {number + 1}: relay {relay[-1][0]:,.0f}/s, bare "
                  + ", ".join(f"{others[linger][-1][0]:,.0f}/s (linger {linger})" for linger in LINGERS), flush=True)
    best = max(LINGERS, key=lambda linger: statistics.median(r for r, _ in others[linger]))
    bare_rate, bare_cpu = (statistics.median(v) for v in zip(*others[best], strict=True))
    rate, own, library = (statistics.median(v) for v in zip(*relay, strict=True))
    print(f"{args.events:,} events of {SIZE} bytes, one lane, PostgreSQL {pg.version}\n"
          f"  bare librdkafka, linger.ms {best:<3}  {bare_rate:10,.0f}/s   CPU per event {bare_cpu:.2f} us\n"
          f"  relay                         {rate:10,.0f}/s   CPU per event {own:.2f} us its own, {library:.2f} us librdkafka's threads\n"
          f"  ratio                         {rate / bare_rate:10.2f}")


if __name__ == "__main__":
    main()
