"""Where the demo's events go: a topic that a consumer reads, or an endpoint that verifies what comes. Both keep `records`: key, event_id,
event_type and payload of what arrived, in its order, repeats included; and `times`: when, and how long after it was written."""

import os
import threading
import time
from datetime import datetime

from confluent_kafka import Consumer, KafkaError, TopicPartition
from harness import kafka as kafka_module
from harness.kafka import Kafka
from harness.mock import Mock
from harness.webhooks import Webhooks, options

TOPIC = "payments"


class Topic:
    """Apache Kafka, or the mock broker. Reads the topic from its beginning, in a thread."""

    sink, there = "kafka", "on the topic"
    bulk = 20_000  # payments settled in one transaction, for a relay that is killed in the middle of a batch
    as_seen = f"The topic {TOPIC}, as a consumer sees it"

    def __init__(self, stack, say, now):
        reason = kafka_module.available()
        self.mock = os.environ.get("DEMO_BROKER") == "mock" or bool(reason)
        if reason and os.environ.get("DEMO_BROKER") != "mock":
            say(f"   No Apache Kafka here ({reason}): the mock broker stands in.")
        self._say, self._now, self.records, self.times, self._ends = say, now, [], [], threading.Event()
        self.broker = stack.enter_context(Mock() if self.mock else Kafka())
        self.broker.start()
        self.what = f"{'the mock broker' if self.mock else 'Apache Kafka'} on {self.broker.bootstrap}"
        if self.mock:
            self.broker.cmd(f"topic {TOPIC} 1")
        else:
            self.broker.create_topic(TOPIC)
        conf = {"bootstrap.servers": self.broker.bootstrap, "group.id": "demo", "enable.auto.commit": False,
                "auto.offset.reset": "earliest", "log_level": 0, "fetch.wait.max.ms": 50}
        self._consumer, self._asker = Consumer(conf), Consumer(conf)  # one for each thread
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        stack.callback(self.close)

    def statements(self):
        return ["CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka\n"
                f"      OPTIONS (bootstrap_servers '{self.broker.bootstrap}', topic '{TOPIC}')"]

    def _read(self):
        while not self._ends.is_set():
            for m in self._consumer.consume(1000, 0.02):
                if m.error():
                    if m.error().code() not in (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART):
                        self._say(f"   the consumer says: {m.error()}")
                    continue
                self.times.append((self._now(), time.time() - m.timestamp()[1] / 1000))
                headers = dict(m.headers() or [])
                self.records.append((m.key().decode(), headers["event_id"].decode(), headers["event_type"].decode(),
                                     m.value()))
        self._consumer.close()

    def end(self):
        """The topic's end, as the broker has it: ahead of what has been read."""
        return self._asker.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=5, cached=False)[1]

    def footnote(self):
        return "(The mock broker stores a request twice that is sent twice; Apache Kafka does not.)" if self.mock else None

    def close(self):
        self._ends.set()
        self._thread.join(10)
        self._asker.close()


class Endpoint:
    """A small receiver: it verifies each request with the reference library of Standard Webhooks, and knows what it has had before."""

    sink, there = "hooks", "at the receiver"
    bulk = 4_000
    as_seen = "What the receiver has verified and taken"

    def __init__(self, stack, _, now):
        self.server = stack.enter_context(Webhooks())
        self._shift = now() - time.monotonic()
        self.what = f"a receiver of webhooks at {self.server.url}"

    def statements(self):
        return [f"CREATE SERVER hooks FOREIGN DATA WRAPPER outbox_http\n      OPTIONS (url '{self.server.url}', allow_http 'true', allow_private 'true')",
                f"CREATE USER MAPPING FOR CURRENT_USER SERVER hooks {options({'secret': self.server.secrets[0]})}"]

    @property
    def records(self):
        return [(r.key, r.id, r.type, r.data) for r in list(self.server.requests) if r.status == 204]

    @property
    def times(self):
        # Of both clocks here and now, what they are apart; an event says by one of them when it was written.
        apart = time.time() - time.monotonic()
        return [(r.at + self._shift, r.at + apart - datetime.fromisoformat(r.event["timestamp"]).timestamp())
                for r in list(self.server.requests) if r.status == 204]

    def end(self):
        return len(self.server.accepted) + self.server.repeats

    def footnote(self):
        refused = sum(r.verified is False for r in self.server.requests)
        return f"(Signatures that were not right: {refused}. The receiver dropped what it had had before.)"
