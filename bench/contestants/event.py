"""The event that everybody sends, and the tables that hold it."""

from ..stage import SIZE

KEYS = 1000
# As jsonb spells it, so that it has the same bytes in every table.
PAYLOAD = '{"note": "%s"}' % ("x" * (SIZE - 12))
TYPE, AGGREGATE = "order_captured", "order"

# The columns of outbox.events, with a primary key and nothing else: the plain INSERT that writers are held against.
PLAIN = """
    CREATE TABLE plain (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
        event_id uuid NOT NULL DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id text, event_type text NOT NULL,
        payload json, payload_bytes bytea, headers jsonb, topic text,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(), segment smallint NOT NULL DEFAULT 0)
"""


def backlog(table, count, key=f"'key-' || g %% {KEYS}", columns="aggregate_type, aggregate_id, event_type, payload", cast="json"):
    """SQL and parameters that write `count` events to the table in one transaction."""
    return (f"INSERT INTO {table} ({columns}) SELECT %s, {key}, %s, %s::{cast} FROM generate_series(1, %s) g",
            [AGGREGATE, TYPE, PAYLOAD, count])
