"""A real Kafka broker of the test's own: one node, KRaft, loopback."""

import base64
import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient, ConfigResource,
                                   NewPartitions, NewTopic, ResourcePatternType, ResourceType)

from . import env
from .factor import patience
from .wait import eventually

BROKER = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "num.partitions": 1,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 2,
    "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,
    # A broker that was killed comes back when its old session has expired; 9 s by default.
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
}


@dataclass
class Record:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    timestamp: int | None = None

    def json(self):
        return json.loads(self.value)

    def header(self, name, default=None):
        """The last header of that name, as text."""
        found = [v for k, v in self.headers if k == name]
        return default if not found else None if found[-1] is None else found[-1].decode()


class Cluster:
    """What a test does to a cluster as its client, whatever runs it: topics, records. `bootstrap` is the address."""

    bootstrap = None
    _admin = None

    # ---- topics ----------------------------------------------------------------------------------------------------

    def admin(self):
        """Confluent's AdminClient, one for each run of the broker."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500})
        return self._admin

    def create_topic(self, name=None, partitions=1, config=None):
        """Returns the name; without one it makes a new one. Returns when the broker leads every partition."""
        name = name or f"t-{uuid.uuid4().hex[:12]}"

        def made():
            try:
                self._done(self.admin().create_topics([NewTopic(name, partitions, 1, config=config or {})]))
            except KafkaException as e:
                if e.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                    raise
                return False  # the broker is fenced: it was frozen or killed, and its controller has not heard of it since
            return True
        eventually(made, 30, f"the broker takes topic {name}")

        def ready():
            t = self.admin().list_topics(name, timeout=5).topics[name]
            return t.error is None and len(t.partitions) == partitions and all(p.leader == 1 for p in t.partitions.values())
        eventually(ready, 30, f"topic {name}", ignore=(KafkaException,))
        return name

    def delete_topic(self, name):
        self._done(self.admin().delete_topics([name]))
        eventually(lambda: name not in self.topics(), 30, f"topic {name} gone")

    def add_partitions(self, name, total):
        self._done(self.admin().create_partitions([NewPartitions(name, total)]))
        eventually(lambda: len(self.partitions(name)) == total, 30, f"{total} partitions of {name}")

    def alter_topic(self, name, config):
        """Replaces the topic's own settings."""
        self._done(self.admin().alter_configs([ConfigResource(ResourceType.TOPIC, name, set_config=config)]))

    def allow(self, user, topic, operation="ALL"):
        """Grants it to a user of the SASL listener: allow("relay", "payments", "WRITE")."""
        rule = AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*",
                          AclOperation[operation], AclPermissionType.ALLOW)
        self._done(self.admin().create_acls([rule]))

    def disallow(self, user, topic):
        """Takes back what allow() gave."""
        rule = AclBindingFilter(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", None, AclOperation.ANY,
                                AclPermissionType.ANY)
        self._done(self.admin().delete_acls([rule]))

    def topics(self):
        return {t for t in self.admin().list_topics(timeout=10).topics if not t.startswith("__")}

    def partitions(self, topic):
        t = self.admin().list_topics(topic, timeout=10).topics[topic]
        if t.error:
            raise KafkaException(t.error)
        return sorted(t.partitions)

    @staticmethod
    def _done(futures):
        for f in futures.values():
            f.result(30)

    # ---- records -----------------------------------------------------------------------------------------------------

    def produce(self, topic, value, key=None, headers=None, partition=None):
        """One record of the test's own, acknowledged when this returns."""
        p = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        kw = {} if partition is None else {"partition": partition}
        errors = []
        p.produce(topic, value, key, headers=headers, on_delivery=lambda e, _: e and errors.append(e), **kw)
        left = p.flush(30)
        assert not errors and not left, f"not delivered: {errors}"

    def end_offsets(self, topic):
        """The next offset of each partition: {partition: offset}."""
        c = self._consumer()
        try:
            return {p: c.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in self.partitions(topic)}
        finally:
            c.close()

    def consume(self, topic, until=None, timeout=None, start=None):
        """The records of a topic from its beginning (or from start={partition: offset}), by partition and offset, so that a
        key's records are in the order in which the broker has them.

        until=None       what is there now
        until=n          waits for n records; fails when there are fewer at the deadline. What is there beyond n comes too
        until=predicate  called with the list so far, until it gives something true
        """
        wanted = (lambda got: len(got) >= until) if isinstance(until, int) else until
        timeout = timeout or patience(60)
        deadline = time.monotonic() + timeout
        c = self._consumer()
        got = []
        try:
            parts = self._retry(lambda: self.partitions(topic), deadline)
            marks = self._retry(lambda: {p: c.get_watermark_offsets(TopicPartition(topic, p), timeout=10) for p in parts}, deadline)
            ends = {p: high for p, (_, high) in marks.items()}
            # At an absolute offset, which spares the client a query that it makes half a second later.
            c.assign([TopicPartition(topic, p, max((start or {}).get(p, 0), low)) for p, (low, _) in marks.items()])
            # The end of a partition is what the consumer says, since offsets have gaps: compaction, transactions.
            reached = dict.fromkeys(parts, -1)
            while True:
                if all(reached[p] >= ends[p] for p in parts) and (wanted is None or wanted(got)):
                    break
                if time.monotonic() > deadline:
                    last = [(r.partition, r.offset, r.key) for r in got[-5:]]
                    raise AssertionError(f"{topic}: {len(got)} records within {timeout} s, wanted {until}; the last: {last}")
                for m in c.consume(1000, timeout=0.05):
                    if not m.error():
                        reached[m.partition()] = m.offset() + 1
                        got.append(Record(m.topic(), m.partition(), m.offset(), m.key(), m.value(), list(m.headers() or []),
                                          m.timestamp()[1]))
                    elif m.error().code() == KafkaError._PARTITION_EOF:
                        reached[m.partition()] = m.offset()
        finally:
            c.close()
        return sorted(got, key=lambda r: (r.partition, r.offset))

    @staticmethod
    def _retry(f, deadline):
        while True:
            try:
                return f()
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _consumer(self):
        return Consumer({"bootstrap.servers": self.bootstrap, "group.id": "test", "enable.auto.commit": False, "log_level": 0,
                         "auto.offset.reset": "earliest", "isolation.level": "read_committed", "enable.partition.eof": True,
                         "fetch.wait.max.ms": 50})


class Kafka(Cluster):
    """One broker. `properties` go into its configuration. With sasl={user: password} it has a second listener
    (SASL_PLAINTEXT, mechanism PLAIN) at `sasl_bootstrap`, and an authorizer under which those users may do nothing but what
    the test grants them with allow(); the plain listener may do everything. With tls="host" it has a TLS listener at
    `tls_bootstrap`, under that host's name, and a certificate for it, signed by itself, in the file `certificate`; `keystore` has the key too."""

    def __init__(self, properties=None, sasl=None, tls=None, name="kafka", heap="512m"):
        if not (env.ENV / "kafka").exists():
            raise RuntimeError("no Kafka: run tests/env/install.sh")
        self.dir = env.temp_dir(name)
        self.port, self.controller_port = env.free_port(), env.free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.heap = heap
        self.proc = None
        self.frozen = False
        listeners = {"PLAINTEXT": self.port, "CONTROLLER": self.controller_port}
        conf = dict(BROKER)
        if sasl:
            self.sasl_port = env.free_port()
            self.sasl_bootstrap = f"127.0.0.1:{self.sasl_port}"
            listeners["SASL_PLAINTEXT"] = self.sasl_port
            users = " ".join(f'user_{u}="{p}"' for u, p in sasl.items())
            conf |= {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config":
                    f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
        if tls:
            self.tls_port = env.free_port()
            self.tls_bootstrap = f"{tls}:{self.tls_port}"
            listeners["SSL"] = self.tls_port
            conf |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self._certify(tls)}
        conf |= {
            "listeners": ",".join(f"{k}://127.0.0.1:{p}" for k, p in listeners.items()),
            "advertised.listeners": ",".join(f"{k}://{tls if k == 'SSL' else '127.0.0.1'}:{p}" for k, p in listeners.items() if k != "CONTROLLER"),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "log.dirs": self.dir / "data",
        }
        self.properties = conf | (properties or {})
        self._write()
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a")
        done = subprocess.run(env.command(self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", self.config)),
                              capture_output=True, text=True, cwd="/")
        if done.returncode:
            raise RuntimeError(f"formatting the storage failed:\n{done.stdout}{done.stderr}")

    def _certify(self, host):
        """A key and a certificate for the host; returns the file that has both."""
        key, self.certificate, self.keystore = (self.dir / name for name in ("key.pem", "certificate.pem", "keystore.pem"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={host}", "-addext",
                        f"subjectAltName=DNS:{host}", "-keyout", key, "-out", self.certificate], check=True, capture_output=True)
        self.keystore.write_text(key.read_text() + self.certificate.read_text())
        self.keystore.chmod(0o644)
        return self.keystore

    @property
    def config(self):
        return self.dir / "server.properties"

    @property
    def logfile(self):
        return self.dir / "log"

    def _write(self):
        self.config.write_text("".join(f"{k}={v}\n" for k, v in self.properties.items()))
        self.config.chmod(0o644)

    def _java(self, *args):
        log4j = env.ENV / "kafka" / "log4j2.properties"
        return ["java", f"-Xmx{self.heap}", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
                f"-Dlog4j2.configurationFile={log4j}", "-Djava.net.preferIPv4Stack=true", f"-Djava.io.tmpdir={self.dir}",
                "-cp", f"{env.ENV / 'kafka'}/*", *args]

    # ---- running -------------------------------------------------------------------------------------------------

    def start(self, wait=True, timeout=90):
        assert not self.running, "already running"
        log = self.logfile.open("ab")
        self.proc = subprocess.Popen(env.command(self._java("kafka.Kafka", self.config), dies_by="KILL"),
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir, start_new_session=True)
        log.close()
        if wait:
            self.wait_ready(timeout)
        return self

    def wait_ready(self, timeout=90):
        deadline = time.monotonic() + timeout
        while True:
            if self.proc.poll() is not None:
                raise RuntimeError(f"the broker did not start (exit {self.proc.returncode}):\n{env.tail(self.log())}")
            try:
                if self.admin().list_topics(timeout=2).brokers:
                    return
            except KafkaException:
                pass
            if time.monotonic() > deadline:
                raise AssertionError(f"the broker was not ready within {timeout} s:\n{env.tail(self.log())}")
            time.sleep(0.1)

    @property
    def running(self):
        return self.proc is not None and self.proc.poll() is None

    def stop(self, timeout=60):
        """A clean stop."""
        self._end(signal.SIGTERM, timeout)

    def kill(self):
        """kill -9."""
        self._end(signal.SIGKILL, 30)

    def _end(self, sig, timeout):
        if not self.running:
            return
        self._admin = None
        self.resume()
        env.send(self.proc.pid, sig)
        try:
            self.proc.wait(timeout)
        except subprocess.TimeoutExpired:
            env.send(self.proc.pid, signal.SIGKILL)
            self.proc.wait()
            if sig != signal.SIGTERM:
                raise

    def freeze(self):
        """Connections stay open, nobody answers."""
        env.freeze(self.proc.pid)
        self.frozen = True

    def resume(self):
        if self.frozen:
            env.send(self.proc.pid, signal.SIGCONT)
            self.frozen = False

    def restart(self, kill=False, wait=True):
        """On the same port, with the same data."""
        self.kill() if kill else self.stop()
        return self.start(wait)

    def configure(self, properties):
        """For the next start."""
        self.properties |= properties
        self._write()

    def add_listener(self, name, advertised):
        """For the next start: a second plain listener, whose port this returns. Clients that come by it are sent to the port `advertised`."""
        port = env.free_port()
        self.configure({
            "listeners": self.properties["listeners"] + f",{name}://127.0.0.1:{port}",
            "advertised.listeners": self.properties["advertised.listeners"] + f",{name}://127.0.0.1:{advertised}",
            "listener.security.protocol.map": self.properties["listener.security.protocol.map"] + f",{name}:PLAINTEXT"})
        return port

    def close(self):
        try:
            self.kill()
        finally:
            env.remove_tree(self.dir)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def log(self):
        try:
            return self.logfile.read_text(errors="replace")
        except FileNotFoundError:
            return ""


def available():
    """None, or why there is no Kafka on this machine."""
    if not shutil.which("java"):
        return "no java"
    return None if os.path.exists(env.ENV / "kafka") else "the jars of Kafka are not there: run tests/env/install.sh"
