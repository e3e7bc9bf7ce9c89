"""P4: from COMMIT to the consumer, at 500 events a second."""

import contextlib
import sys
import time

from ..contestants import by_hand
from ..contestants.bare import Bare
from ..contestants.debezium import Debezium
from ..contestants.event import AGGREGATE, KEYS, TYPE
from ..contestants.outbox import Outbox
from ..meter import Level, quantile
from ..report import Row, pairs
from ..stage import HERE, SIZE, Failed, Program, in_rounds, say

FIGURES = ("P4",)
PACE = 500
WARM = 3  # seconds that are left out
NOTE = "x" * (SIZE - 27)
PAYLOAD = f"""('{{"n": ' || %(n)s::int || ', "note": "{NOTE}"}}')"""
KEY = f"'key-' || %(n)s::int %% {KEYS}"
STATEMENT = {
    "outbox": f"SELECT outbox.add_event({KEY}, '{TYPE}', {PAYLOAD}::json, aggregate_type => '{AGGREGATE}')",
    "taught": f"INSERT INTO taught (aggregate_type, aggregate_id, event_type, payload) VALUES ('{AGGREGATE}', {KEY}, '{TYPE}', {PAYLOAD}::jsonb)",
    "tuned": f"INSERT INTO tuned (aggregate_type, aggregate_id, event_type, payload) VALUES ('{AGGREGATE}', {KEY}, '{TYPE}', {PAYLOAD}::json)",
    "debezium": f"INSERT INTO debezium (aggregatetype, aggregateid, type, payload) VALUES ('{AGGREGATE}', {KEY}, '{TYPE}', {PAYLOAD}::jsonb)",
}


def figures(latencies, since_sent=None):
    """Milliseconds."""
    out = {"p50": quantile(latencies, 0.5), "p99": quantile(latencies, 0.99)}
    if since_sent:
        out |= {"p50 since COMMIT was sent": quantile(since_sent, 0.5), "p99 since COMMIT was sent": quantile(since_sent, 0.99)}
    return out


def consumer(stage, topic, count):
    return Program([sys.executable, HERE / "programs/consumer.py", stage.kafka.bootstrap, topic, count])


def received(program):
    return [tuple(map(int, line.split())) for line in program.wait(120).splitlines()]


def bare(stage):
    count = PACE * (WARM + stage.options.seconds)
    with stage.topic() as topic, consumer(stage, topic, count) as reader, Bare(stage, 0).sending(topic, count, PACE) as sender:
        sender.wait(stage.options.seconds + 90)
        return figures([(at - sent) / 1e6 for sent, at in received(reader)][WARM * PACE:])


def through(stage, db, statement, relay):
    count = PACE * (WARM + stage.options.seconds)
    with stage.topic() as topic, relay(topic) as running:
        with db.connect() as c:
            c.execute(statement, {"n": 0})
        with Level(stage.kafka, topic) as level:
            deadline = time.monotonic() + 60
            while level() < 1:
                running.check()
                if time.monotonic() > deadline:
                    raise Failed("the first event did not come within 60 s")
                time.sleep(0.05)
        with consumer(stage, topic, count + 1) as reader, Program([sys.executable, HERE / "programs/writer.py", db.dsn, statement, count, PACE]) as writer:
            written = {n: (sent, returned) for n, sent, returned in (map(int, line.split()) for line in writer.wait(stage.options.seconds * 5 + 60).splitlines())}
            got = [(n, at) for n, at in received(reader) if n > WARM * PACE]
    return figures([(at - written[n][1]) / 1e6 for n, at in got], [(at - written[n][0]) / 1e6 for n, at in got])


def measure(stage, raw):
    with contextlib.ExitStack() as stack:
        def database(name, extension=False):
            return stack.enter_context(stage.database(f"bench_latency_{name}", extension))

        contestants = {"bare librdkafka, linger.ms 0": lambda: bare(stage)}
        db = database("outbox", extension=True)
        contestants["outbox"] = lambda: through(stage, db, STATEMENT["outbox"], Outbox(stage, db).sink_from_now)
        for kind in "tuned", "taught":
            if stage.wants(kind):
                hand = by_hand.ByHand(stage, database(kind), kind)
                contestants[hand.name] = lambda h=hand: through(stage, h.db, STATEMENT[h.kind], lambda topic: by_hand.relay(stage, h.db, h.kind, topic))
        if stage.wants("debezium"):
            try:
                debezium = Debezium(stage, database("debezium"))
                contestants[debezium.name] = lambda: through(stage, debezium.db, STATEMENT["debezium"], debezium.relay_from_now)
            except Failed as e:
                say(f"without Debezium: {e}")
        in_rounds(stage, "latency", contestants, raw.setdefault("rounds", []))


def rows(raw):
    return [Row("P4", f"COMMIT to consumer : produce to consumer of bare librdkafka, {q}",
                *pairs(raw["rounds"], "outbox", "bare librdkafka, linger.ms 0", q), "ms", 1.5, at_most=True) for q in ("p50", "p99")]


def tables(raw):
    return [(f"COMMIT (bare: produce) to consumer at {PACE} events/s, ms", raw["rounds"],
             {q: q for q in ("p50", "p99", "p50 since COMMIT was sent", "p99 since COMMIT was sent")})]
