"""Adds up what was paid, each event once, however often it comes."""
import os
import signal
import sys

import psycopg
from confluent_kafka import Consumer

signal.signal(signal.SIGTERM, lambda *_: sys.exit())

consumer = Consumer({
    "bootstrap.servers": os.environ["BROKERS"],
    "group.id": "totals-python",
    "enable.auto.commit": False,  # the offset is committed when the work is
    "auto.offset.reset": "earliest",
})
consumer.subscribe([os.environ["TOPIC"]])

with psycopg.connect(os.environ["DSN"], autocommit=True) as db:
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            sys.exit(str(message.error()))  # whoever started it starts it again
        event_id = dict(message.headers())["event_id"].decode()
        with db.transaction():
            claimed = db.execute("SELECT outbox.inbox_claim('totals-python', %s)", [event_id]).fetchone()[0]
            if claimed:  # else it came before
                db.execute("INSERT INTO totals VALUES (%s, (%s::json ->> 'amount')::numeric)"
                           " ON CONFLICT (payment) DO UPDATE SET total = totals.total + excluded.total",
                           [message.key().decode(), message.value().decode()])
        consumer.commit(message)
