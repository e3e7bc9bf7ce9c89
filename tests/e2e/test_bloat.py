"""Neither an old snapshot nor stale statistics make a relay slower, nor an open transaction a look at the views."""
import re
import time

from harness.factor import scaled
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending

def write(db, events):
    db.sql("INSERT INTO outbox.events (aggregate_id, event_type, payload) SELECT g %% 100, 'written', '1' FROM generate_series(1, %s) g", [events])


def test_an_old_snapshot_elsewhere_does_not_slow_the_relay_down(db, kafka, topic):
    """B64. A batch for each event, so that each leaves a progress row; those that are deleted stay while the snapshot is open."""
    make_sink(db, kafka, topic, batch_size=1)
    write(db, 10)
    nothing_pending(db)

    def round_of(events):
        write(db, events)
        begin = time.monotonic()
        eventually(lambda: db.value("SELECT pending FROM outbox.lag") == 0, 60, "all are published", interval=0.01)
        return time.monotonic() - begin
    with db.connect(autocommit=False) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM outbox.events")
        rounds = [round_of(200) for _ in range(scaled(12))]
        third = len(rounds) // 3
        first, last = min(rounds[:third]), min(rounds[-third:])
        assert last < 2 * first, f"{first:.2f} s at first, {last:.2f} s at last: {rounds}"
    before = db.value("SELECT pg_table_size('outbox.lanes') + pg_table_size('outbox.sinks')")
    assert before <= 2 * (8192 * 5), "nothing is updated from pass to pass"


def test_of_old_progress_rows_one_a_minute_stays(db, mock):
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", batch_size=1)
    write(db, 1100)
    nothing_pending(db)
    db.sql("UPDATE outbox.progress SET recorded_at = date_trunc('hour', now()) - (batch % 5 + 60) * interval '1 minute'")
    recorded = db.value("SELECT max(batch) FROM outbox.progress")
    write(db, 1100)
    nothing_pending(db)
    left = [b for b, in db.sql("SELECT batch FROM outbox.progress WHERE batch < %s ORDER BY 1", [recorded])]
    # Neighbours were recorded in different minutes there: they all stay. Of those of one minute the last does.
    assert len(left) > 1000
    db.sql("UPDATE outbox.progress SET recorded_at = date_trunc('hour', now()) - (batch / 500 + 60) * interval '1 minute'")
    write(db, 1100)
    nothing_pending(db)
    left = [b for b, in db.sql("SELECT batch FROM outbox.progress WHERE batch < %s ORDER BY 1", [recorded])]
    assert left == [b for b in range(499, recorded, 500)], left


def test_a_transaction_that_stays_open_does_not_make_a_look_at_the_views_longer(db, mock):
    """Whatever was written since it began is above the xmin of each lane's snapshot."""
    mock.cmd("topic t 1")
    make_sink(db, mock, "t")
    with db.connect(autocommit=False) as open_for_hours:
        open_for_hours.execute("SELECT pg_current_xact_id()")
        write(db, scaled(5000))
        nothing_pending(db)

        def passed_by():
            return db.value("SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname ~ '^events_'")
        with db.connect() as c:
            c.execute("SELECT pg_stat_force_next_flush()")
            before = passed_by()
            for view in ("lag", "metrics", "metrics_log", "health"):
                c.execute(f"SELECT * FROM outbox.{view}").fetchall()
            c.execute("SELECT pg_stat_force_next_flush()")
            assert passed_by() - before < 100


def test_a_relay_reads_by_the_index_whatever_the_statistics_say(make_pg, kafka, topic):
    """B65. The statistics are of an empty log when it is full, then of a full one of which nothing is pending. The log of auto_explain
    has the plan of each of the relay's statements."""
    pg = make_pg(conf={"shared_preload_libraries": "outbox,auto_explain", "auto_explain.log_min_duration": 0})
    pg.sql("CREATE EXTENSION outbox")
    pg.sql("ANALYZE")
    make_sink(pg, kafka, topic)
    write(pg, 10)
    nothing_pending(pg)
    before = pg.mark()
    write(pg, scaled(20_000))  # the statistics know nothing of them
    nothing_pending(pg)
    pg.sql("ANALYZE outbox.events")
    write(pg, 1000)
    nothing_pending(pg)
    plans = [entry for entry in re.split(r"\n(?=\d{4}-\d\d-\d\d )", pg.log_since(before)) if "outbox relay LOG:  duration" in entry]
    of_the_log = [plan for plan in plans if re.search(r"on events_?\d", plan)]
    assert of_the_log, plans[:3]
    bad = [plan for plan in plans if re.search(r"Seq Scan on (events|progress|parked)", plan)]
    # What a late transaction wrote is found by its xid, and the ids of a batch are sorted: the first write is late where it took longer than a poll.
    bad += [plan for plan in of_the_log if re.search(r"->  Sort|^\s*Sort ", plan, re.M) and not re.search(r"Function Scan on unnest writer.*\n\s*->  Limit.*\n\s*->  Index Only Scan using events_\d+_xid.*\n\s*Index Cond: \(\(ROW\(xid, id\) >", plan)]
    assert not bad, bad[0]
