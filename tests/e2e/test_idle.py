"""A database with nothing to do does next to nothing."""
import time

import pytest
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending

LANES, POLL, WINDOW = 4, 1.0, 5.0
PG_CONF = {
    "shared_preload_libraries": "outbox,pg_stat_statements", "pg_stat_statements.track": "all", "outbox.poll_interval": f"{POLL:g}s",
    # Nobody else writes WAL either: no standby snapshots, no autovacuum.
    "wal_level": "minimal", "max_wal_senders": 0, "autovacuum": "off",
}
# Seen from another database, so that what looks is not among what is counted.
COUNTS = """
    SELECT query, calls, (shared_blks_hit + shared_blks_read) / calls AS pages, total_exec_time / calls AS ms
    FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = %s) AND calls > 0 ORDER BY calls DESC
"""
WRITTEN = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_wal_insert_lsn()"


@pytest.mark.matrix
def test_an_idle_sink_uses_no_transaction_ids_writes_no_wal_and_asks_once_per_lane_and_interval(db, kafka, topic):
    """B69."""
    db.pg.sql("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    make_sink(db, kafka, topic, lanes=LANES)
    db.sql("SELECT outbox.add_event('key-' || g, 'written', '1') FROM generate_series(1, 200) g")
    nothing_pending(db)
    eventually(lambda: db.value("SELECT bool_and(state = 'idle') FROM outbox.relays"), 20, "every lane idles")
    with db.pg.connect() as watch:
        def idle():
            """What was written and asked in one window."""
            watch.execute("SELECT pg_stat_statements_reset()")
            before, begin = watch.execute(WRITTEN).fetchone(), time.monotonic()
            time.sleep(WINDOW)
            after, counts = watch.execute(WRITTEN).fetchone(), watch.execute(COUNTS, [db.name]).fetchall()
            return before, after, counts, time.monotonic() - begin
        # Once a minute a relay looks after the segments: that must not be in each window.
        for _ in range(3):
            before, after, counts, took = idle()
            calls = sum(calls for _, calls, _, _ in counts)
            text = f"in {took:.1f} s\n" + "\n".join(f"{calls} x {pages} pages, {ms:.3f} ms: {' '.join(query.split())[:150]}"
                                                   for query, calls, pages, ms in counts)
            assert calls >= LANES, f"nothing was looked at {text}"
            if before == after and calls <= LANES * (took / POLL + 1):
                break
    assert before == after, f"xid and WAL went from {before} to {after} {text}"
    assert calls <= LANES * (took / POLL + 1), f"{calls} queries {text}"
    assert all(pages <= 20 and ms < 5 for _, _, pages, ms in counts), text
