"""A relay by hand, as tutorials teach it. taught.py DSN BOOTSTRAP TOPIC"""

import json
import sys
import time

import psycopg
from confluent_kafka import Producer

BATCH = 100
PAUSE = 0.5

dsn, bootstrap, topic = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
failed = []


def on_delivery(error, _):
    if error:
        failed.append(error)


with psycopg.connect(dsn, autocommit=True) as connection:
    while True:
        with connection.transaction():
            rows = connection.execute("""
                SELECT id, event_id, aggregate_type, aggregate_id, event_type, payload FROM taught
                WHERE published_at IS NULL ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED""", [BATCH]).fetchall()
            for _, event_id, aggregate_type, aggregate_id, event_type, payload in rows:
                producer.produce(topic, key=aggregate_id, value=json.dumps(payload), on_delivery=on_delivery,
                                 headers={"event_id": str(event_id), "event_type": event_type, "aggregate_type": aggregate_type})
            producer.flush()
            if failed:
                raise RuntimeError(f"not delivered: {failed[0]}")
            connection.execute("UPDATE taught SET published_at = now() WHERE id = ANY(%s)", [[row[0] for row in rows]])
        if not rows:
            time.sleep(PAUSE)
