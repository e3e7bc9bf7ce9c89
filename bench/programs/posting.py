"""A relay by hand that posts one event at a time, as tutorials have it. posting.py DSN URL SECRET

The table is that of `by hand, as taught` (contestants/by_hand.py)."""

import json
import sys
import time
from datetime import datetime, timezone

import psycopg
import requests
from standardwebhooks import Webhook

BATCH = 100
PAUSE = 0.5

dsn, url, secret = sys.argv[1:]
webhook, session = Webhook(secret), requests.Session()


def post(event_id, event_type, created_at, payload):
    body = json.dumps({"type": event_type, "timestamp": created_at.isoformat(), "data": payload})
    now = datetime.now(timezone.utc)
    headers = {"content-type": "application/json", "webhook-id": str(event_id), "webhook-timestamp": str(int(now.timestamp())),
               "webhook-signature": webhook.sign(str(event_id), now, body)}
    session.post(url, data=body, headers=headers, timeout=15).raise_for_status()


with psycopg.connect(dsn, autocommit=True) as connection:
    while True:
        with connection.transaction():
            rows = connection.execute("""
                SELECT id, event_id, event_type, created_at, payload FROM taught
                WHERE published_at IS NULL ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED""", [BATCH]).fetchall()
            for _, *event in rows:
                post(*event)
            connection.execute("UPDATE taught SET published_at = now() WHERE id = ANY(%s)", [[row[0] for row in rows]])
        if not rows:
            time.sleep(PAUSE)
