"""An idempotent consumer, as a program of its own so that it can be killed:  receipts.py BOOTSTRAP TOPIC DSN

It writes a receipt for each captured payment, in one transaction with outbox.inbox_claim, and commits its offsets now and then, after
the work. Partitions are assigned by hand: a member of a group that was killed would keep them for seconds."""

import sys
import time

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition

GROUP = "receipts"
SCHEMA = """
    CREATE EXTENSION outbox;
    CREATE TABLE seen (event_id uuid, payment text, event_type text);
    CREATE TABLE receipt (payment text);
"""


def settings(bootstrap):
    return {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0,
            "reconnect.backoff.max.ms": 500}


def handle(connection, message):
    header = {name: value.decode() for name, value in message.headers()}
    with connection.transaction():
        if not connection.execute("SELECT outbox.inbox_claim('receipts', %s)", [header["event_id"]]).fetchone()[0]:
            return
        payment = message.key().decode()
        connection.execute("INSERT INTO seen VALUES (%s, %s, %s)", [header["event_id"], payment, header["event_type"]])
        if header["event_type"] == "captured":
            connection.execute("INSERT INTO receipt VALUES (%s)", [payment])


def run(bootstrap, topic, dsn):
    consumer = Consumer(settings(bootstrap))
    with psycopg.connect(dsn, autocommit=True) as connection:
        place = consumer.committed([TopicPartition(topic, 0)], timeout=10)
        consumer.assign([TopicPartition(topic, 0, max(place[0].offset, 0))])
        since = time.monotonic()
        while True:
            for message in consumer.consume(20, timeout=0.2):
                if not message.error():
                    handle(connection, message)
            if time.monotonic() - since > 0.3:
                since = time.monotonic()
                try:
                    consumer.commit(offsets=consumer.position([TopicPartition(topic, 0)]), asynchronous=False)
                except KafkaException:
                    pass  # the broker is away, or there is nothing to commit


if __name__ == "__main__":
    while True:
        try:
            run(*sys.argv[1:])
        except (psycopg.Error, KafkaException):
            time.sleep(0.1)
