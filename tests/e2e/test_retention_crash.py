"""The server crashes in the middle of turning the ring or of truncating a segment."""
import pytest
from harness import checker
from harness.wait import eventually
from harness.workload import GONE, Killer, Threads, make_sink, nothing_pending

from test_retention import RUN, age, aged_run, all_goes, write

PG_FLAVOUR = "faults"


@pytest.mark.parametrize("where", ["before_turn", "after_turn", "after_truncation"])
def test_a_crash_in_the_middle_loses_nothing_and_the_next_one_completes_it(db, kafka, topic, rng, where):
    """B74. Somebody writes meanwhile."""
    make_sink(db, kafka, topic)
    write(db, 50)
    nothing_pending(db)
    if where == "after_truncation":
        assert aged_run(db)[0] is True
    events, threads, pids = checker.committed(db), Threads(), []

    def run():
        with db.connect(autocommit=False) as c:
            c.execute("SET outbox.fault = '%s'" % where)
            pids.append(c.info.backend_pid)
            try:
                while True:  # the lane must have gone by the fence first
                    age(db)
                    c.execute(RUN)
                    c.commit()
            except GONE:
                return
    threads.start(run)
    eventually(lambda: pids and db.sql("SELECT 1 FROM pg_locks WHERE pid = %s AND locktype = 'advisory' AND granted", [pids[0]])
               and db.sql("SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Extension'", [pids[0]]), 30, "it is held")
    write(db, 50, "meanwhile")
    Killer(db, rng).crash(pids[0])
    threads.join()
    write(db, 50, "later")
    nothing_pending(db)
    written = [*events, *checker.committed(db, "aggregate_id <> 'k'")]
    assert len(written) == 150
    checker.check(written, kafka.consume(topic, until=150)).must_hold(repeats=50)
    all_goes(db)
    write(db, 5, "at last")
    nothing_pending(db)
