"""Debezium: its PostgreSQL connector (pgoutput) with the Outbox Event Router, in Kafka Connect, standalone."""

import contextlib
import hashlib
import shutil
import subprocess
import time

from harness import env

from ..meter import Drain
from ..stage import HERE, Failed, Program, say
from .event import backlog

NAME = "Debezium"
SLOT = "bench_debezium"
# The router's own names of the columns. A publication and a slot, made before the events are written, are what it drains.
TABLE = """
    CREATE TABLE debezium (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL, aggregateid text NOT NULL,
                           type text NOT NULL, payload jsonb);
    CREATE PUBLICATION debezium FOR TABLE debezium WITH (publish = 'insert');
"""
COLUMNS = "aggregatetype, aggregateid, type, payload"
# Four times Debezium's own batch and queue, and the producer's linger and batch that are recommended for throughput.
TUNED = {"max.batch.size": 8192, "max.queue.size": 32768, "poll.interval.ms": 10}
PRODUCER = {"producer.linger.ms": 5, "producer.batch.size": 1_000_000}


def jars():
    """The directory of the jars, which are fetched once."""
    pom = HERE / "debezium/pom.xml"
    target = env.ENV / f"debezium-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}"
    if target.exists():
        return target
    say("fetching the jars of Debezium and Kafka Connect")
    work = env.temp_dir("debezium")
    try:
        shutil.copy(pom, work)
        done = subprocess.run(["mvn", "-q", "-B", "-Dstyle.color=never", "dependency:copy-dependencies", "-DincludeScope=runtime",
                               f"-DoutputDirectory={work / 'jars'}"], cwd=work, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"mvn gave {done.returncode}:\n{env.tail(done.stdout + done.stderr, 10)}")
        shutil.copy(env.REPO / "tests/env/log4j2.properties", work / "jars")
        subprocess.run(["chmod", "-R", "a+rX", work / "jars"], check=True)
        with contextlib.suppress(OSError):  # somebody else was quicker
            (work / "jars").rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


class Debezium:
    name = NAME

    def __init__(self, stage, db):
        self.stage, self.db = stage, db
        self._jars = jars()
        db.sql(TABLE)

    def _write(self, path, settings):
        path.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        path.chmod(0o644)
        return path

    def _worker(self, where):
        strings = "org.apache.kafka.connect.storage.StringConverter"
        return self._write(where / "worker.properties", {
            "bootstrap.servers": self.stage.kafka.bootstrap, "listeners": f"http://127.0.0.1:{env.free_port()}",
            "key.converter": strings, "value.converter": strings, "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
            "offset.storage.file.filename": where / "offsets", "offset.flush.interval.ms": 10_000, "plugin.discovery": "service_load", **PRODUCER})

    def _connector(self, where, topic):
        router = {"table.field.event.id": "id", "route.topic.replacement": topic,
                  "table.fields.additional.placement": "type:header:event_type,aggregatetype:header:aggregate_type"}
        return self._write(where / "connector.properties", {
            "name": "outbox", "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": 1,
            "database.hostname": "127.0.0.1", "database.port": self.db.pg.port, "database.user": "postgres", "database.dbname": self.db.name,
            "topic.prefix": "bench", "table.include.list": "public.debezium", "plugin.name": "pgoutput", "slot.name": SLOT,
            "publication.name": "debezium", "publication.autocreate.mode": "disabled", "snapshot.mode": "no_data",
            "tombstones.on.delete": "false", "transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
            **{f"transforms.outbox.{k}": v for k, v in router.items()}, **TUNED})

    @contextlib.contextmanager
    def slot(self):
        """The replication slot: what is written from now on is what the connector sends."""
        self.db.sql("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])
        try:
            yield
        finally:
            self._drop_slot()

    def _drop_slot(self):
        """A walsender notices that its client has gone when it next sends."""
        for _ in range(100):
            if not self.db.pg.running:
                return
            self.db.sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active", [SLOT])
            with contextlib.suppress(Exception):
                self.db.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [SLOT])
                return
            time.sleep(0.1)

    @contextlib.contextmanager
    def relay(self, topic):
        where = env.temp_dir("connect")
        try:
            java = ["java", "-Xmx1g", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={self._jars / 'log4j2.properties'}", f"-Djava.io.tmpdir={where}",
                    "-cp", f"{self._jars}/*", "org.apache.kafka.connect.cli.ConnectStandalone", self._worker(where), self._connector(where, topic)]
            with Program(java, as_user=True, cwd=where) as program:
                yield program
        finally:
            env.remove_tree(where)

    @contextlib.contextmanager
    def relay_from_now(self, topic):
        with self.slot(), self.relay(topic) as program:
            yield program

    def fill(self, count):
        self.db.sql("TRUNCATE debezium")
        self.db.sql(*backlog("debezium", count, columns=COLUMNS, cast="jsonb"))

    def drain(self, events):
        with self.slot():
            self.fill(events)
            with self.stage.topic() as topic, self.relay(topic) as program:
                return Drain().watch(self.stage.kafka, topic, events, self.stage.options.patience, lambda: program.pid, program.check)
