"""What all contestants share: one server, one broker, the options of the run, and the processes that it has started."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from confluent_kafka import KafkaException
from harness import env
from harness.kafka import Kafka
from harness.postgres import Postgres

HERE = Path(__file__).resolve().parent
START = time.monotonic()
SIZE = 300  # bytes of an event's payload

SERVER = {
    "shared_buffers": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "max_connections": 100,
    "log_min_messages": "warning",
    # Debezium reads the WAL so.
    "wal_level": "logical",
    "max_replication_slots": 4,
}
BROKER = {"file.delete.delay.ms": 1000}


class Failed(Exception):
    """A measurement could not be taken; str() says why. The others go on."""


def say(text):
    print(f"[{time.monotonic() - START:6.0f} s] {text}", flush=True)


@dataclass
class Options:
    events: int
    rounds: int
    seconds: int
    big: int
    only: list
    without: list
    out: Path
    # The time after which a slow contestant's drain is ended; its rate is known by then.
    patience: float = 20
    again: Path | None = None


@dataclass
class Stage:
    options: Options
    pg: Postgres = None
    kafka: Kafka = None
    failures: list = field(default_factory=list)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self):
        try:
            say("starting PostgreSQL and Kafka")
            self.pg = self._stack.enter_context(Postgres(conf=SERVER, name="bench"))
            self.kafka = self._stack.enter_context(Kafka(BROKER, heap="1g", name="benchkafka"))
            self.pg.start()
            self.kafka.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends what was started, whatever else is pressed meanwhile."""
        before = {s: signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._stack.close()
        finally:
            for s, handler in before.items():
                signal.signal(s, handler)

    def wants(self, contestant):
        return contestant not in self.options.without

    @contextlib.contextmanager
    def database(self, name, extension=True):
        """A new database of the shared server, which is dropped at the end."""
        self.pg.sql(f"CREATE DATABASE {name}")
        try:
            if extension:
                self.pg.sql("CREATE EXTENSION outbox", dbname=name)
            yield Database(self.pg, name)
        finally:
            if self.pg.running:
                self.pg.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    @contextlib.contextmanager
    def topic(self):
        """A new topic, which is deleted at the end: a million events take half a gigabyte."""
        name = self.kafka.create_topic()
        try:
            yield name
        finally:
            if self.kafka.running:
                self.kafka.delete_topic(name)


class Database:
    def __init__(self, pg, name):
        self.pg, self.name = pg, name

    def sql(self, query, params=None):
        return self.pg.sql(query, params, dbname=self.name)

    def value(self, query, params=None):
        return self.pg.value(query, params, dbname=self.name)

    def connect(self, **kw):
        return self.pg.connect(self.name, **kw)

    @property
    def dsn(self):
        return self.pg.dsn(self.name)


class Program:
    """A client program: ends with the block, and with the benchmark. `as_user` runs it as the servers' user."""

    def __init__(self, argv, as_user=False, cwd=None, environ=None):
        argv = [str(a) for a in argv]
        self.name = Path(argv[1] if "python" in argv[0] and len(argv) > 1 else argv[0]).name
        self.errors = tempfile.TemporaryFile("w+")
        self.output = tempfile.TemporaryFile("w+")
        command = env.command(argv, dies_by="KILL") if as_user else ["setpriv", "--pdeathsig=KILL", "--", *argv]
        self.proc = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.errors,
                                     start_new_session=True, cwd=cwd, env={**os.environ, **(environ or {})})

    @property
    def pid(self):
        return self.proc.pid

    def said(self):
        self.output.seek(0)
        return self.output.read()

    def complaint(self):
        self.errors.seek(0)
        return env.tail(self.errors.read() + self.said(), 15)

    def check(self):
        """It runs, or has ended well."""
        if self.proc.poll():
            raise Failed(f"{self.name} ended with {self.proc.returncode}:\n{self.complaint()}")

    def wait(self, timeout=600):
        try:
            self.proc.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} did not end within {timeout} s") from None
        self.check()
        return self.said()

    def stop(self, patience=20):
        if self.proc.poll() is None:
            self.proc.terminate()
            try:
                self.proc.wait(patience)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        self.errors.close()
        self.output.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def in_rounds(stage, title, contestants, raw):
    """Each contestant's turn in each round: raw gets a dictionary a round, of what each one's function returned. Who fails is
    named and left out; the next round begins with another one."""
    names = list(contestants)
    for number in range(stage.options.rounds):
        row = {}
        raw.append(row)
        for name in names[number % len(names):] + names[:number % len(names)]:
            try:
                row[name] = contestants[name]()
            except (Failed, AssertionError, RuntimeError, OSError, subprocess.SubprocessError, psycopg.Error, KafkaException) as e:
                stage.failures.append(f"{title}, round {number + 1}: {name}")
                say(f"{stage.failures[-1]} FAILED: {e}")
                continue
            say(f"{title}, round {number + 1}: {name} {describe(row[name])}")


def describe(figures):
    """The figures of one turn, short."""
    if not isinstance(figures, dict):
        return f"{figures:,.6g}"
    return ", ".join(f"{k} {v:,.6g}" for k, v in figures.items() if isinstance(v, int | float))
