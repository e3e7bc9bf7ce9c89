"""By hand: a table and a polling relay (programs/taught.py, programs/tuned.py) as people write them."""

import sys

from ..meter import Drain
from ..stage import HERE, Program
from .event import backlog

# As tutorials have it: an unpublished row has no published_at, found by a partial index; consumers tell repeats by a unique id.
TAUGHT = """
    CREATE TABLE taught (
        id bigserial PRIMARY KEY, event_id uuid NOT NULL DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id text,
        event_type text NOT NULL, payload jsonb, created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz);
    CREATE UNIQUE INDEX ON taught (event_id);
    CREATE INDEX ON taught (id) WHERE published_at IS NULL;
"""
# What was tuned stands in programs/tuned.py.
TUNED = """
    CREATE TABLE tuned (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL DEFAULT gen_random_uuid(), aggregate_type text,
        aggregate_id text, event_type text NOT NULL, payload json, created_at timestamptz NOT NULL DEFAULT now());
"""


def relay(stage, db, kind, topic):
    return Program([sys.executable, HERE / f"programs/{kind}.py", db.dsn, stage.kafka.bootstrap, topic])


class ByHand:
    def __init__(self, stage, db, kind):
        self.stage, self.db, self.kind = stage, db, kind
        self.name = "by hand, as taught" if kind == "taught" else "by hand, tuned"
        db.sql(TAUGHT if kind == "taught" else TUNED)

    def fill(self, count):
        self.db.sql(f"TRUNCATE {self.kind}")
        self.db.sql(*backlog(self.kind, count, cast="jsonb" if self.kind == "taught" else "json"))
        self.db.sql(f"VACUUM ANALYZE {self.kind}")

    def drain(self, events):
        self.fill(events)
        with self.stage.topic() as topic, relay(self.stage, self.db, self.kind, topic) as program:
            return Drain().watch(self.stage.kafka, topic, events, self.stage.options.patience, lambda: program.pid, program.check)
