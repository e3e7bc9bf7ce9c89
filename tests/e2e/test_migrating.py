"""docs/migrating.md, done while writers write: nothing is lost, no key's order is broken. What is run are the page's own blocks."""

import contextlib
import random
import sys
import threading
import time
import uuid

import pytest
from confluent_kafka import Producer
from harness import env
from harness.factor import scaled
from harness.pages import DOCS, Reader, blocks
from harness.postgres import Database
from harness.wait import eventually
from harness.workload import Threads, nothing_pending

PAGE = DOCS / "migrating.md"
KEYS = [f"pay-{n}" for n in range(20)]
PG_CONF = {"wal_level": "logical"}


def part(heading):
    """The blocks under a heading of the second level, by a word that stands in them."""
    text = PAGE.read_text()
    begin = text.index(f"\n## {heading}\n")
    first, last = text[:begin].count("\n"), text[:text.index("\n## ", begin + 4)].count("\n")
    there = [b for b in blocks(PAGE) if first < b.line <= last]

    def block(*words):
        found, = [b for b in there if all(word in b.text for word in words)]
        return found
    return block


@pytest.fixture
def shop(pg, kafka):
    """The database and the topics of the page, for a reader of it."""
    if pg.root:
        pytest.skip("a reader has the host's PostgreSQL")
    pg.sql("CREATE DATABASE shop")
    db = Database(pg, "shop")
    db.sql("CREATE EXTENSION outbox")
    db.sql("CREATE TABLE payments (id text PRIMARY KEY, version bigint NOT NULL DEFAULT 0)")
    db.sql("INSERT INTO payments SELECT unnest(%s::text[])", [KEYS])
    yield db
    pg.sql("DROP DATABASE shop WITH (FORCE)")


class Writers:
    """Each transaction takes the next version of a payment, under its row's lock, and writes an event that tells it; some are rolled
    back, and some are open for long. `insert` is the statement of the application, which is never changed."""

    def __init__(self, db, insert, rng, clients=4):
        self.db, self.insert, self.over = db, insert, threading.Event()
        self.threads, self.written = Threads(), 0
        for _ in range(clients):
            self.threads.start(self._write, random.Random(rng.random()))

    def _write(self, rng):
        with self.db.connect(autocommit=False) as c:
            while not self.over.is_set():
                key = rng.choice(KEYS)
                version, = c.execute("UPDATE payments SET version = version + 1 WHERE id = %s RETURNING version", [key]).fetchone()
                c.execute(self.insert, {"id": uuid.UUID(int=rng.getrandbits(128), version=4), "key": key, "version": version})
                time.sleep(rng.choice([0, 0, 0, 0.002, 0.05]))
                if rng.random() < 0.1:
                    c.rollback()
                else:
                    c.commit()
                    self.written += 1

    def more(self, n):
        """Waits until so many more events were committed."""
        aim = self.written + n
        eventually(lambda: self.written >= aim or self.threads.errors, 60, f"{n} more events")

    def stop(self):
        self.over.set()
        self.threads.join()


class OldRelay:
    """The relay that somebody wrote by hand: rows in the order of their ids, marked when the broker has them."""

    def __init__(self, db, kafka, topic):
        self.db, self.topic, self.over = db, topic, threading.Event()
        self.producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
        self.threads = Threads()
        self.threads.start(self._run)

    def _run(self):
        with self.db.connect() as c:
            while not self.over.is_set():
                rows = c.execute("SELECT id, event_id, aggregate_id, payload::text FROM old_outbox WHERE published_at IS NULL"
                                 " ORDER BY id LIMIT 50").fetchall()
                for _, event_id, key, payload in rows:
                    self.producer.produce(self.topic, payload, key, headers={"event_id": str(event_id)})
                assert self.producer.flush(30) == 0
                c.execute("UPDATE old_outbox SET published_at = now() WHERE id = ANY(%s)", [[r[0] for r in rows]])
                time.sleep(0.01 if rows else 0.05)

    def stop(self):
        self.over.set()
        self.threads.join()


def must_be_whole(records, versions, ident="event_id"):
    """Each key's versions came each once and in their order: 1, 2, 3 … without those that were rolled back."""
    ids = [r.header(ident) for r in records]
    assert len(ids) == len(set(ids)), "an event came twice"
    for key, last in versions.items():
        got = [r.json()["version"] for r in records if r.key == key.encode()]
        assert got == list(range(1, last + 1)), f"{key}: {last} versions, the topic has {got}"


def test_from_a_relay_by_hand_under_load(shop, kafka, rng):
    topic = kafka.create_topic(partitions=3)
    block = part("From a relay written by hand")
    reader = Reader(shop.pg, shop.name, kafka)

    def run(*words):
        found = block(*words)
        code, said = reader.sql(found.text.replace("topic 'payments'", f"topic '{topic}'"))
        assert code == 0, said
        return said
    run("CREATE TABLE old_outbox")
    with contextlib.ExitStack() as stack:
        relay = OldRelay(shop, kafka, topic)
        stack.callback(relay.stop)
        writers = Writers(shop, "INSERT INTO old_outbox (event_id, aggregate_id, event_type, payload)"
                                " VALUES (%(id)s, %(key)s, 'captured', json_build_object('version', %(version)s::bigint))", rng)
        stack.callback(writers.stop)
        writers.more(scaled(100))
        run("outbox.pause")
        writers.more(scaled(50))
        relay.stop()
        writers.more(scaled(50))  # these wait in the old table
        said = run("LOCK TABLE old_outbox")
        moved = int(said.split("moved")[1].split("\n")[2])
        assert moved > 0 and shop.value("SELECT count(*) FROM old_outbox WHERE published_at IS NULL") == 0
        writers.more(scaled(50))
        run("outbox.resume")
        writers.more(scaled(100))
    nothing_pending(shop)
    assert shop.value("SELECT count(*) FROM old_outbox WHERE published_at IS NULL") == 0
    versions = dict(shop.sql("SELECT id, version FROM payments"))
    must_be_whole(kafka.consume(topic, until=sum(versions.values())), versions)
    assert shop.value("SELECT count(*) FROM outbox.parked") == 0
    run("DROP TABLE old_outbox")


@contextlib.contextmanager
def connector(db, kafka):
    """Debezium's connector in Kafka Connect, with the router's defaults and string converters; a regular stop at the end."""
    sys.path.insert(0, str(env.REPO))
    from bench.contestants.debezium import jars
    from bench.stage import Program
    where, jars, strings = env.temp_dir("connect"), jars(), "org.apache.kafka.connect.storage.StringConverter"

    def write(name, settings):
        (where / name).write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        (where / name).chmod(0o644)
        return where / name
    try:
        with Program(["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={jars / 'log4j2.properties'}",
                      f"-Djava.io.tmpdir={where}", "-cp", f"{jars}/*", "org.apache.kafka.connect.cli.ConnectStandalone",
                      write("worker.properties", {
                          "bootstrap.servers": kafka.bootstrap, "listeners": f"http://127.0.0.1:{env.free_port()}", "key.converter": strings,
                          "value.converter": strings, "header.converter": strings, "offset.storage.file.filename": where / "offsets",
                          "plugin.discovery": "service_load"}),
                      write("connector.properties", {
                          "name": "outbox", "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": 1,
                          "database.hostname": "127.0.0.1", "database.port": db.pg.port, "database.user": "postgres", "database.dbname": db.name,
                          "topic.prefix": "shop", "table.include.list": "public.outboxevent", "plugin.name": "pgoutput", "slot.name": "debezium",
                          "publication.name": "dbz_publication", "snapshot.mode": "no_data", "tombstones.on.delete": "false",
                          "transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter"})],
                     as_user=True, cwd=where) as program:
            yield program
    finally:
        env.remove_tree(where)


@pytest.mark.long
def test_from_debezium_under_load(shop, kafka, rng):
    """In the long tier only: it takes Debezium's packages, 40 MB."""
    kind = f"order-{uuid.uuid4().hex[:8]}"
    topic = kafka.create_topic(f"outbox.event.{kind}", partitions=3)
    kafka.create_topic("outbox.event.cutover")
    block = part("From Debezium's Outbox Event Router")
    reader = Reader(shop.pg, shop.name, kafka)

    def run(*words):
        code, said = reader.sql(block(*words).text.replace("'order/*'", f"'{kind}/*'").replace("'order'", f"'{kind}'"))
        assert code == 0, said
    run("CREATE TABLE outboxevent")
    shop.sql("CREATE PUBLICATION dbz_publication FOR TABLE outboxevent")
    shop.sql("SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')")
    try:
        with contextlib.ExitStack() as stack:
            connect = stack.enter_context(connector(shop, kafka))
            # As applications do it that leave reading to the WAL: the row goes again in the same transaction.
            writers = Writers(shop, f"WITH added AS (INSERT INTO outboxevent (id, aggregatetype, aggregateid, type, payload) VALUES (%(id)s, '{kind}',"
                                    " %(key)s, 'captured', jsonb_build_object('version', %(version)s::bigint)))"
                                    " DELETE FROM outboxevent WHERE id = %(id)s", rng)
            stack.callback(writers.stop)
            writers.more(scaled(50))
            kafka.consume(topic, until=50)  # the connector is at work
            run("outbox.pause")
            writers.more(scaled(50))
            run("LOCK TABLE outboxevent")
            writers.more(scaled(50))
            kafka.consume("outbox.event.cutover", until=1)
            connect.stop()
            eventually(lambda: shop.value("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active") is not None, 30,
                       "the slot is dropped")
            writers.more(scaled(50))
            run("outbox.resume")
            writers.more(scaled(50))
        nothing_pending(shop)
        versions = dict(shop.sql("SELECT id, version FROM payments"))
        # What the page's last step added is among them.
        records = [r for r in kafka.consume(topic, until=sum(versions.values()) + 1) if r.key != b"order-1"]
        must_be_whole(records, versions, "id")
        # But for headers about the connector itself, nobody can tell by a record which way it came.
        assert {tuple(name for name, _ in r.headers if not name.startswith("__debezium.")) for r in records} == {("id",)}
        assert all(r.value == b'{"version": %d}' % r.json()["version"] for r in records)
    finally:
        shop.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
        kafka.delete_topic("outbox.event.cutover")
