"""Retention: what goes and what stays, by the relay and by hand. Nobody waits for a day here: rows are made older."""
import time

import psycopg
import pytest
from harness import checker
from harness.factor import patience, scaled
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending, relays

RUN = "SELECT turned, truncated, claims, kept_for FROM outbox.retention_run()"


def write(db, n, key="k"):
    db.sql("SELECT outbox.add_event(%s, 'written', to_json(g)::text) FROM generate_series(1, %s) g", [key, n])


def age(db, by="1 year"):
    """As if all of it had happened so long ago."""
    db.sql("UPDATE outbox.events SET created_at = created_at - %s::interval", [by])
    db.sql("UPDATE outbox.segments SET opened_at = opened_at - %s::interval, closed_at = closed_at - %s::interval", [by, by])
    db.sql("UPDATE outbox.progress SET recorded_at = recorded_at - %s::interval", [by])


def run(db):
    return db.sql(RUN)[0]


def aged_run(db):
    age(db)
    return run(db)


def left(db):
    return db.value("SELECT count(*) FROM outbox.events")


def all_goes(db):
    """By this run or by the relay, when the lanes have gone by the fence."""
    eventually(lambda: (aged_run(db), left(db))[1] == 0, 30, lambda: f"all events go: {run(db)}")


def test_only_what_every_sink_has_published_goes_and_what_keeps_the_rest_is_named(db, kafka, topic):
    """B72. Published, pending, in flight and parked events, all a year old."""
    make_sink(db, kafka, topic)
    write(db, 20)
    db.sql("SELECT outbox.add_event('parked', 'written', '1', topic => %s)", [f"{topic}-missing"])
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 1, 30, "it is parked")
    with db.connect(autocommit=False) as flight:
        flight.execute("SELECT outbox.add_event('flight', 'written', '1')")
        nothing_pending(db)
        db.sql("SELECT outbox.pause('kafka')")
        eventually(lambda: db.value("SELECT state FROM outbox.lag") == "paused", 20, "paused")
        write(db, 5, "pending")
        age(db)
        assert run(db)[:2] == (True, 0)
        turned, truncated, _, kept_for = aged_run(db)
        assert (turned, truncated) == (False, 0)
        assert 'sink "kafka" has still to get events of it: it is paused' in kept_for
        assert f"process {flight.info.backend_pid} has had a transaction open" in kept_for
        assert kept_for in db.value("SELECT detail FROM outbox.health WHERE \"check\" = 'segments' AND NOT ok")
        flight.commit()
    assert "process" not in run(db)[3] and left(db) == 27
    events = [e for e in checker.committed(db) if e.key != "parked"]
    db.sql("SELECT outbox.resume('kafka')")
    nothing_pending(db)
    assert run(db)[1] == 0 and left(db) == 27, "the newest of them has been published just now"
    all_goes(db)
    assert db.value("SELECT count(*) FROM outbox.parked") == 1
    assert run(db) == (False, 0, 0, None)
    assert db.value("SELECT ok FROM outbox.health WHERE \"check\" = 'segments'")
    checker.check(events, kafka.consume(topic)).must_hold(repeats=0)


def test_each_that_keeps_the_log_is_named_and_lets_it_go(db, make_db, kafka, topic):
    """A prepared transaction, who reads (pg_dump), a replay, a sink that was dropped. None of them holds up anybody."""
    make_sink(db, kafka, topic, name="keeper", events="none/none")
    make_sink(db, kafka, topic)
    write(db, 10)
    with db.connect(autocommit=False) as c:
        c.execute("SELECT outbox.add_event('prepared', 'written', '1')")
        c.execute("PREPARE TRANSACTION 'x'")
    nothing_pending(db)
    assert aged_run(db)[0] is True
    assert "\"x\" has been prepared" in eventually(lambda: aged_run(db)[3], 20)
    db.sql("COMMIT PREPARED 'x'")
    nothing_pending(db)
    db.sql("SELECT outbox.pause('kafka')")
    number = db.value("SELECT outbox.replay('kafka', NULL)")
    eventually(lambda: aged_run(db)[3] == f'replay {number} of sink "kafka" has still to read it', 30, lambda: f"the replay is named: {run(db)}")
    assert left(db) == 11
    db.sql("SELECT outbox.resume('kafka')")
    eventually(lambda: db.value("SELECT state FROM outbox.replays") == "done", 30, "it is done")
    with db.connect(autocommit=False) as reader:
        reader.execute("SELECT count(*) FROM outbox.events")
        begin = time.monotonic()
        eventually(lambda: f"process {reader.info.backend_pid} has been reading it" in (aged_run(db)[3] or ""), 30, lambda: f"the reader is named: {run(db)}")
        write(db, 1)
        nothing_pending(db)
        print(f"nobody waited in {time.monotonic() - begin:.1f} s")
        assert left(db) == 12
        reader.commit()
    all_goes(db)
    db.sql("SELECT outbox.pause('kafka')")
    write(db, 3)
    db.sql("DROP SERVER kafka CASCADE")
    assert aged_run(db)[0] is True
    eventually(lambda: 'sink "kafka" was dropped' in (aged_run(db)[3] or ""), 30, lambda: f"the sink is named: {run(db)}")
    assert left(db) == 3
    db.sql("SELECT outbox.forget('kafka')")
    all_goes(db)


def test_it_needs_no_relay(make_pg):
    """Nor the library preloaded: by hand, or by cron."""
    pg = make_pg(conf={"shared_preload_libraries": ""})
    pg.sql("CREATE EXTENSION outbox; CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1')")
    write(pg, 10)

    def published():  # what a relay would record
        pg.sql("INSERT INTO outbox.progress (sink_id, epoch, lane, batch, \"position\", seen, next_xid, events, published)"
               " SELECT sink_id, epoch, lane, batch + 1, (SELECT last_value FROM outbox.events_id_seq), pg_current_snapshot(),"
               " pg_snapshot_xmax(pg_current_snapshot()), 0, 10 FROM outbox.lane_progress")
    assert aged_run(pg)[:2] == (True, 0)
    assert 'sink "kafka"' in aged_run(pg)[3]
    published()
    assert aged_run(pg) == (False, 1, 0, None) and left(pg) == 0
    write(pg, 1)
    assert left(pg) == 1


def test_a_run_that_is_rolled_back_loses_nothing_and_an_old_snapshot_is_refused(db, kafka, topic):
    make_sink(db, kafka, topic)
    write(db, 10)
    nothing_pending(db)
    age(db)
    with db.connect(autocommit=False) as c:
        assert c.execute(RUN).fetchone()[0] is True
        write(db, 10)  # to the new turn, which nobody can see in outbox.segments
        c.rollback()
    nothing_pending(db)
    all_goes(db)
    write(db, 10)
    nothing_pending(db)
    assert len(kafka.consume(topic, until=30)) == 30
    with db.connect(autocommit=False) as c:
        c.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="READ COMMITTED"):
            c.execute(RUN)


def test_with_a_retention_of_zero_events_go_as_soon_as_they_are_published(make_pg, kafka, topic):
    """And the ring turns once in five seconds at most."""
    pg = make_pg(conf={"outbox.retention": 0})
    pg.sql("CREATE EXTENSION outbox")
    begin = pg.value("SELECT opened_at FROM outbox.segments")
    make_sink(pg, kafka, topic)
    write(pg, 100)
    eventually(lambda: left(pg) == 0, 60, "they go by themselves", interval=0.2)
    turns, allowed = pg.sql("SELECT last_value, extract(epoch FROM clock_timestamp() - %s) / 5 FROM outbox.turn", [begin])[0]
    assert 1 <= turns <= allowed
    assert len(kafka.consume(topic, until=100)) == 100


def test_claims_that_are_gone_cost_nothing_while_somebody_holds_an_old_snapshot(db, mock):
    """They stay in the index of the claims then, which a relay would pass through before each thousand that it deletes."""
    gone, rounds = scaled(100_000), 20
    claim = "INSERT INTO outbox.inbox SELECT 'c', gen_random_uuid(), now() - interval '31 days' + g * interval '1 ms' FROM generate_series(%s::int, %s::int) g"
    mock.cmd("topic t 1")
    db.sql(claim, [1, gone])
    with db.connect(autocommit=False) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM outbox.inbox")
        db.sql("DELETE FROM outbox.inbox")
        db.sql(claim, [gone + 1, gone + rounds * 1000])
        read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'inbox_claimed_at'"
        before = db.value(read)
        make_sink(db, mock, "t")
        eventually(lambda: db.value("SELECT count(*) FROM outbox.inbox") == 0, patience(60), "they are deleted")
        [relay] = relays(db)
        db.sql("SELECT pg_terminate_backend(%s, 10000)", [relay])  # it leaves its statistics
        passed = (db.value(read) - before) / gone
    print(f"passed by {passed:.1f} times")
    # Each round would pass by them twice.
    assert 1 <= passed < rounds, f"passed by {passed:.1f} times"


def test_the_inbox_remembers_for_longer_than_the_log_and_forgets_by_itself(db, make_db, kafka, topic):
    """B98. More than one round's worth of claims, by a relay and by hand."""
    outbox, inbox = db.sql("SELECT current_setting('outbox.retention')::interval, current_setting('outbox.inbox_retention')::interval")[0]
    assert inbox > outbox

    def claim(db):
        db.sql("INSERT INTO outbox.inbox SELECT 'old', gen_random_uuid(), now() - interval '31 days' FROM generate_series(1, 2500)")
        db.sql("INSERT INTO outbox.inbox SELECT 'young', gen_random_uuid(), now() - interval '29 days' FROM generate_series(1, 10)")

    def there():
        return db.sql("SELECT consumer, count(*) FROM outbox.inbox GROUP BY 1")
    claim(db)
    make_sink(db, kafka, topic)
    eventually(lambda: there() == [("young", 10)], 60, "the relay forgets them")
    db = make_db()  # with no sink
    claim(db)
    assert run(db)[2] == 2500 and there() == [("young", 10)]
    db.pg.configure(outbox__inbox_retention=-1)
    db.pg.reload()
    try:
        eventually(lambda: db.value("SHOW outbox.inbox_retention") == "-1", 10, "the setting")
        claim(db)
        assert run(db)[2] == 0 and len(there()) == 2, "for ever"
    finally:
        db.pg.configure(outbox__inbox_retention="30d")
        db.pg.reload()
