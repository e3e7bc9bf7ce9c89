"""What a full batch costs the server besides reading it: statements and bytes of WAL, not time, so that a loaded machine changes nothing."""
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending

PG_CONF = {"shared_preload_libraries": "outbox, pg_stat_statements", "pg_stat_statements.track": "all", "autovacuum": "off", "max_wal_size": "4GB"}
BATCH, BATCHES = 100, 40
# Of one batch. What grows by more than a tenth fails; who makes it cheaper puts the new figure here.
STATEMENTS = 5.4  # read the late ones and the new ones, lock the lane, look at its progress, record; and a few of reading the sink again
WAL = 332         # bytes: the lane's lock, the progress row, the commit
WRITE = "INSERT INTO outbox.events (aggregate_id, event_type, payload) SELECT g % 50, 'changed', '1' FROM generate_series(1, {}) g"


def test_a_batch_takes_no_more_statements_and_writes_no_more_wal_than_it_did(db, kafka, topic):
    db.sql("CREATE EXTENSION pg_stat_statements; CREATE ROLE watcher SUPERUSER")
    make_sink(db, kafka, topic, batch_size=BATCH)
    db.sql(WRITE.format(BATCH))
    nothing_pending(db)
    with db.connect() as c:
        c.execute("SET ROLE watcher")  # so that its own statements are told from the relay's

        def one(query, *args):
            return c.execute(query, args or None).fetchone()[0]

        def published():
            return one("SELECT sum(published) FROM outbox.live_relays()")

        found = []
        for _ in range(3):  # a checkpoint can come between: the cheapest counts
            one("SELECT outbox.pause('kafka')::text")
            eventually(lambda: one("SELECT state FROM outbox.live_relays()") == "paused", 20, "it pauses")
            before = published()
            c.execute(WRITE.format(BATCH * BATCHES))
            one("SELECT count(pg_stat_statements_reset())")
            lsn = one("SELECT pg_current_wal_insert_lsn()")
            one("SELECT outbox.resume('kafka')::text")
            eventually(lambda: published() >= before + BATCH * BATCHES, 60, "all are published")
            eventually(lambda: one("SELECT state FROM outbox.live_relays()") == "idle", 20, "it is idle again")
            wal = one("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", lsn) / BATCHES
            statements = one("SELECT sum(calls) FROM pg_stat_statements WHERE userid <> 'watcher'::regrole") / BATCHES
            found.append((float(statements), float(wal)))
    print(f"statements and bytes of WAL, each of a batch: {found}")
    assert min(s for s, _ in found) <= 1.1 * STATEMENTS, found
    assert min(w for _, w in found) <= 1.1 * WAL, found
