"""What befalls a database and its server while events flow: DDL that is rolled back, workers without a slot, signals, standbys."""
import signal
import threading
import time

import psycopg
import pytest
from conftest import Database
from harness import checker, env
from harness.factor import patience, scaled
from harness.wait import eventually, never
from harness.workload import Threads, make_sink, nothing_pending, relays


def write(db, n=20, key="k"):
    db.sql("SELECT outbox.add_event(%s, 'written', to_json(g)::text) FROM generate_series(1, %s) g", [key, n])


def each_once(db, kafka, topic):
    events = checker.committed(db)
    checker.check(events, kafka.consume(topic, until=checker.has_all(events))).must_hold(repeats=0)


def a_relay(db, timeout=20):
    return eventually(lambda: relays(db), timeout, "a relay")[0]


def ours(pg):
    return {b["pid"] for b in pg.backends("backend_type LIKE 'outbox%'")}


def in_a_batch_without_an_answer(db):
    db.sql("CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', topic 't', delivery_timeout '60s')")
    write(db)
    eventually(lambda: db.value("SELECT state FROM outbox.lag") == "running", 20, "a batch is under way")


# ---- the extension -----------------------------------------------------------------------------------------------------------

def test_ddl_that_is_rolled_back_changes_nothing(db, make_db, kafka, topic):
    make_sink(db, kafka, topic)
    other = make_db(extension=False)
    pid, mark = a_relay(db), db.pg.mark()
    with other.connect(autocommit=False) as c:
        c.execute("CREATE EXTENSION outbox")
        c.execute("CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1')")
        c.execute("SELECT outbox.add_event('k', 'x', '{}')")
        c.rollback()
    for drop in ("DROP EXTENSION outbox CASCADE", "DROP SCHEMA outbox CASCADE", "DROP SERVER kafka CASCADE", "DROP OWNED BY postgres CASCADE"):
        with db.connect(autocommit=False) as c:
            if drop.startswith("DROP OWNED"):
                c.execute("CREATE ROLE life SUPERUSER; ALTER SERVER kafka OWNER TO life; DROP OWNED BY life CASCADE")
            else:
                c.execute(drop)
            c.rollback()
        write(db)
        nothing_pending(db)
    assert relays(db) == [pid] and not relays(other)
    each_once(db, kafka, topic)
    log = db.pg.log_since(mark)
    assert "ERROR" not in log and "WARNING" not in log, log


@pytest.mark.parametrize("drop", ["DROP EXTENSION outbox CASCADE", "DROP SCHEMA outbox CASCADE", "DROP OWNED BY {owner} CASCADE"])
def test_an_extension_that_is_dropped_in_a_batch_leaves_nothing_to_the_next_one(make_db, kafka, topic, drop):
    db = make_db(extension=False)
    owner = f"owner_{db.name}"
    db.sql(f"CREATE ROLE {owner} SUPERUSER LOGIN")
    try:
        db.pg.sql("CREATE EXTENSION outbox", dbname=db.name, user=owner)
        # Its relay has an error to tell, and has gone a long way.
        db.sql("CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', topic 't', delivery_timeout '500ms')")
        write(db, 500)
        eventually(lambda: db.value("SELECT last_error IS NOT NULL FROM outbox.lag"), 20, "it is backing off")
        mark = db.pg.mark()
        # At once, and with the numbers that the old one had: sink 1, lane 0, events from 1.
        db.sql(f"BEGIN; {drop.format(owner=owner)}; CREATE EXTENSION outbox; COMMIT")
        make_sink(db, kafka, topic)
        write(db, 100)
        nothing_pending(db)
        assert db.sql("SELECT state, last_error, last_error_at, published, position FROM outbox.relays") == [("idle", None, None, 100, 100)]
        each_once(db, kafka, topic)
        log = db.pg.log_since(mark)
        assert "ERROR" not in log and "WARNING" not in log, log
    finally:
        db.sql(f"DROP EXTENSION outbox CASCADE; DROP OWNED BY {owner} CASCADE; DROP ROLE {owner}")


def test_relays_that_look_all_the_time_see_no_mixture_of_two_extensions(db):
    """B47: the new one can be seen a moment before a process hears that what it knows of the old one is void."""
    db.pg.configure(outbox__poll_interval="10ms")
    db.pg.reload()
    mark = db.pg.mark()
    try:
        for _ in range(scaled(4)):
            db.sql("CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', lanes '4')")
            eventually(lambda: db.value("SELECT count(*) FROM outbox.live_relays() WHERE state = 'idle'") == 4, 30, "four idle relays")
            db.sql("BEGIN; DROP EXTENSION outbox CASCADE; CREATE EXTENSION outbox; COMMIT")
        log = db.pg.log_since(mark)
        assert "ERROR" not in log and "WARNING" not in log, log
    finally:
        db.pg.configure(outbox__poll_interval="1s")
        db.pg.reload()


def test_a_sink_that_comes_again_is_not_paused_and_has_no_old_error(db, kafka, topic):
    db.sql("CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', topic 't', delivery_timeout '500ms')")
    write(db)
    eventually(lambda: db.value("SELECT last_error IS NOT NULL FROM outbox.lag"), 20, "it is backing off")
    db.sql("SELECT outbox.pause('kafka')")
    with db.connect(autocommit=False) as c:
        c.execute("DROP SERVER kafka CASCADE")
        c.execute(f"""CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka
                      OPTIONS (bootstrap_servers '{kafka.bootstrap}', topic '{topic}', format 'payload')""")
        c.commit()
    nothing_pending(db)
    each_once(db, kafka, topic)
    assert db.sql("SELECT state, last_error FROM outbox.lag") == [("idle", None)]


def test_where_library_and_sql_differ_in_version_the_relay_waits_and_says_so_once(db, kafka, topic):
    make_sink(db, kafka, topic)
    write(db)
    nothing_pending(db)
    version = db.value("SELECT extversion FROM pg_extension WHERE extname = 'outbox'")
    mark = db.pg.mark()
    db.sql("UPDATE pg_extension SET extversion = '0.0.9' WHERE extname = 'outbox'")
    db.sql("ALTER TABLE outbox.sinks RENAME COLUMN paused TO something_else")  # nothing of ours fits that version
    db.sql("SELECT pg_terminate_backend(%s)", [a_relay(db)])
    write(db)
    line = f"the library is of version {version} and the extension in this database of version 0.0.9: ALTER EXTENSION outbox UPDATE"
    eventually(lambda: db.value("SELECT count(*) FROM outbox.live_relays() WHERE state = 'disabled' AND last_error = %s", [line]), 20, "disabled")
    never(lambda: db.pg.log_since(mark).count(line) > 1, 2.5, "it says so again")
    assert "ERROR" not in db.pg.log_since(mark)
    db.sql("ALTER TABLE outbox.sinks RENAME COLUMN something_else TO paused")
    db.sql("UPDATE pg_extension SET extversion = %s WHERE extname = 'outbox'", [version])
    nothing_pending(db)
    assert db.sql("SELECT state, last_error FROM outbox.lag") == [("idle", None)]
    each_once(db, kafka, topic)


def test_a_publication_for_all_tables_is_in_nobody_s_way(db, kafka, topic):
    db.sql("CREATE PUBLICATION everything FOR ALL TABLES")
    missing = f"{topic}-later"
    make_sink(db, kafka, topic)
    write(db)
    db.sql("SELECT outbox.add_event('parked', 'written', '1', topic => %s)", [missing])
    db.sql("SELECT outbox.add_event('discarded', 'written', '1', topic => %s)", [missing])
    assert db.value("SELECT outbox.cancel(%s)", [db.value("SELECT outbox.add_event('cancelled', 'x', '1', deliver_at => now() + interval '1 day')")])
    db.sql("SELECT outbox.add_event('scheduled', 'written', '1', deliver_at => now() + interval '0.1 s')")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 2, 30, "two are parked")
    db.sql("SELECT outbox.discard('kafka', event_id, 'for once') FROM outbox.parked WHERE aggregate_id = 'discarded'")
    db.sql("UPDATE outbox.parked_events SET next_attempt_at = 'infinity'")
    kafka.create_topic(missing)
    db.sql("SELECT outbox.redrive('kafka', event_id) FROM outbox.parked")
    db.sql("ALTER SERVER kafka OPTIONS (ADD lanes '2')")
    write(db)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.lanes") == 2, 20, "two lanes")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked_events") == 0, 30, "what was parked is sent")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.scheduled") == 0, 30, "what was scheduled moves")
    nothing_pending(db)
    db.sql("DELETE FROM outbox.discarded; DELETE FROM outbox.inbox; DELETE FROM outbox.progress WHERE batch < 0; SELECT outbox.pause('kafka')")
    db.sql("DROP SERVER kafka; SELECT outbox.forget('kafka')")
    assert "replica identity" not in db.pg.log()


# ---- the database ------------------------------------------------------------------------------------------------------------

def test_a_database_is_dropped_by_force_in_the_middle_of_a_batch_and_relays_are_back_when_a_command_fails(make_db):
    db = make_db()
    in_a_batch_without_an_answer(db)
    pid = a_relay(db)
    with pytest.raises(psycopg.errors.DuplicateDatabase):
        db.pg.sql(f"ALTER DATABASE {db.name} RENAME TO postgres")
    eventually(lambda: db.value("SELECT state FROM outbox.lag") == "running" and relays(db) != [pid], 20, "its relay is back")
    session = db.connect()
    db.pg.sql(f"DROP DATABASE {db.name} WITH (FORCE)")
    session.close()
    assert not db.pg.backends("datname = %s", [db.name])


def test_a_database_is_dropped_while_the_first_relay_of_its_first_sink_is_on_its_way(pg, make_db, rng):
    """In each moment of the way: from no worker at all, through a scout, to a relay that runs."""
    model = make_db().name
    slow = []
    for _ in range(scaled(20)):
        name = f"{model}_brief"
        pg.sql(f"CREATE DATABASE {name} TEMPLATE {model}")
        pause = rng.uniform(0, 0.06)
        with pg.connect(name) as c:
            c.execute("CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1')")
        time.sleep(pause)
        begin = time.monotonic()
        pg.sql(f"DROP DATABASE {name}")
        slow.append((round(time.monotonic() - begin, 1), round(pause, 3)))
    print(sorted(slow)[-5:])
    assert max(slow)[0] < 5, sorted(slow)


# ---- workers -----------------------------------------------------------------------------------------------------------------

def test_without_a_free_worker_slot_events_wait_until_there_is_one(make_pg, kafka, topic):
    """B49"""
    # The logical replication launcher, our launcher and one more.
    pg = make_pg(conf={"max_worker_processes": 3, "max_parallel_workers": 0})
    pg.sql("CREATE EXTENSION outbox")
    make_sink(pg, kafka, topic, "first")
    write(pg)
    nothing_pending(pg)
    make_sink(pg, kafka, kafka.create_topic(), "second")
    eventually(lambda: pg.value("SELECT state FROM outbox.lag WHERE sink = 'second'") == "no_worker", 20, "the second one has none")
    checks = dict(pg.sql("SELECT \"check\", hint FROM outbox.health WHERE NOT ok"))
    assert "max_worker_processes" in checks["worker slot"] and "worker slot" in checks["sink second"]
    assert pg.log().count("no background worker slot is free") == 1
    mark = pg.mark()
    pg.sql("DROP SERVER first")
    nothing_pending(pg)
    assert pg.sql("SELECT sink, state, last_error FROM outbox.lag") == [("second", "idle", None)]
    eventually(lambda: pg.value("SELECT ok FROM outbox.health WHERE \"check\" = 'worker slot'"), 20, "nothing is missing")
    assert pg.log_since(mark).count("a background worker slot is free again") == 1
    # More lanes than a server has relays: said, and nothing worse.
    mark = pg.mark()
    pg.sql(f"""CREATE SERVER a FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '{kafka.bootstrap}', lanes '64');
               CREATE SERVER b FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '{kafka.bootstrap}', lanes '64')""")
    pg.sql("SELECT pg_terminate_backend(pid) FROM outbox.relays WHERE pid IS NOT NULL")
    eventually(lambda: "have no relay: 128 is the most for a server" in pg.log_since(mark), 30, "the limit is named")
    pg.assert_no_crash()


def test_workers_that_are_ended_the_moment_they_appear_do_no_harm(db, make_db, kafka, topic):
    """B51: relays, scouts and launcher, and a database goes meanwhile."""
    make_sink(db, kafka, topic, lanes=2)
    other, over, threads = make_db(), threading.Event(), Threads()
    make_sink(other, kafka, topic)
    ended = 0

    def end():
        nonlocal ended
        with db.pg.connect() as c:
            while not over.is_set():
                ended += len(c.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'outbox%'").fetchall())
    threads.start(end)
    write(db)
    eventually(lambda: ended >= scaled(8), patience(60), "eight are ended")
    db.pg.sql(f"DROP DATABASE {other.name} WITH (FORCE)")
    write(db)
    over.set()
    threads.join()
    nothing_pending(db)
    events = checker.committed(db)
    checker.check(events, kafka.consume(topic, until=checker.has_all(events))).must_hold()
    assert not db.pg.backends("datname = %s", [other.name])


def test_whoever_owns_the_extension_may_be_renamed_locked_out_and_dropped(make_db, kafka, topic):
    """B58: relays act as the bootstrap superuser."""
    db = make_db(extension=False)
    owner = f"owner_{db.name}"

    def publishes():
        pid = relays(db)
        db.sql("SELECT pg_terminate_backend(pid) FROM outbox.relays WHERE pid IS NOT NULL")
        write(db)
        nothing_pending(db)
        assert relays(db) != pid
    db.sql(f"CREATE ROLE {owner} SUPERUSER LOGIN")
    db.pg.sql("CREATE EXTENSION outbox", dbname=db.name, user=owner)
    make_sink(db, kafka, topic)
    db.sql(f"ALTER SERVER kafka OWNER TO {owner}")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        db.sql(f"DROP ROLE {owner}")
    db.sql(f"ALTER ROLE {owner} RENAME TO {owner}_x; ALTER ROLE {owner}_x NOLOGIN NOSUPERUSER CONNECTION LIMIT 0")
    db.sql(f"ALTER DATABASE {db.name} CONNECTION LIMIT 0")
    publishes()
    db.sql(f"REASSIGN OWNED BY {owner}_x TO postgres; DROP OWNED BY {owner}_x; DROP ROLE {owner}_x")
    publishes()
    each_once(db, kafka, topic)


def test_pg_cancel_backend_is_nothing_to_our_workers(db, mock):
    mock.cmd("topic t 1")
    mock.cmd("rtt -1 50")
    make_sink(db, mock, "t", batch_size=5)
    write(db, 100)
    before, over, threads = {*relays(db), a_relay(db)}, threading.Event(), Threads()

    def cancel():
        while not over.wait(0.02):
            db.pg.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'outbox%%'")
    threads.start(cancel)
    nothing_pending(db)
    over.set()
    threads.join()
    assert set(relays(db)) == before
    each_once(db, mock, "t")


def test_a_launcher_that_is_terminated_comes_back_and_relays_go_on_meanwhile(db, kafka, topic):
    make_sink(db, kafka, topic)
    relay = a_relay(db)
    for _ in range(2):
        launcher = db.value("SELECT launcher_pid FROM outbox.worker_state()")
        db.sql("SELECT pg_terminate_backend(%s)", [launcher])
        eventually(lambda: db.value("SELECT launcher_pid FROM outbox.worker_state()") not in (None, launcher), 20, "another launcher")
        write(db)
        nothing_pending(db)
    assert relays(db) == [relay]
    # And it knows what to do.
    db.sql("SELECT pg_terminate_backend(%s)", [relay])
    eventually(lambda: relays(db) not in ([], [relay]), 20, "another relay")
    each_once(db, kafka, topic)


def test_workers_leave_when_the_postmaster_is_killed_and_the_next_one_starts(make_pg, kafka, topic):
    pg = make_pg()
    pg.sql("CREATE EXTENSION outbox")
    pg.sql("CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka"
           " OPTIONS (bootstrap_servers '127.0.0.1:1', topic 't', format 'payload', delivery_timeout '60s')")
    pg.sql("CREATE SERVER idle FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', topic 't', events 'none/none')")
    write(pg)
    eventually(lambda: pg.value("SELECT state FROM outbox.lag WHERE sink = 'kafka'") == "running", 20, "a batch is under way")
    pids = ours(pg)
    assert len(pids) == 3
    env.send(pg.pid, signal.SIGKILL)
    assert env.wait_gone(list(pids), 5) == [], "left behind"
    pg.kill()
    pg.configure(outbox__publish="off")
    pg.start()
    pg.configure(outbox__publish="on")
    pg.sql(f"ALTER SERVER kafka OPTIONS (SET bootstrap_servers '{kafka.bootstrap}', SET topic '{topic}')")
    # Again and again: a worker that is being forked misses a reload.
    eventually(lambda: pg.reload() or pg.value("SELECT count(*) FROM outbox.pending") == 0, 60, "nothing pending", interval=0.5)
    each_once(pg, kafka, topic)


# ---- standbys ----------------------------------------------------------------------------------------------------------------

def test_a_standby_is_quiet_and_publishes_after_its_promotion(make_pg, kafka, topic):
    """B54"""
    pg = make_pg()
    pg.sql("CREATE DATABASE shop")
    db = Database(pg, "shop")
    db.sql("CREATE EXTENSION outbox")
    make_sink(db, kafka, topic)
    write(db)
    nothing_pending(db)
    with pg.base_backup(standby=True, name="standby") as standby:
        standby.start()
        pg.configure(outbox__publish="off")
        pg.reload()
        eventually(lambda: db.value("SELECT bool_and(state = 'off') FROM outbox.live_relays()"), 10, "publishing is off")
        write(db)
        copy = Database(standby, "shop")
        eventually(lambda: copy.value("SELECT count(*) FROM outbox.pending") == 20, 20, "the standby has them")
        assert not ours(standby)
        detail, hint = copy.sql("SELECT detail, hint FROM outbox.health WHERE \"check\" = 'launcher'")[0]
        assert "does not run" in detail and "promotion" in hint
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            write(copy)
        pg.kill()
        standby.promote()
        eventually(lambda: copy.value("SELECT count(*) FROM outbox.pending") == 0, 10, "it publishes")
        write(copy)
        nothing_pending(copy)
        each_once(copy, kafka, topic)
        assert copy.sql("SELECT \"check\", detail FROM outbox.health WHERE NOT ok") == []


def test_relays_go_on_where_a_synchronous_standby_is_missing(db, kafka, topic):
    make_sink(db, kafka, topic)
    pg, threads = db.pg, Threads()
    pg.configure(synchronous_standby_names="nobody")
    pg.reload()
    try:
        eventually(lambda: pg.value("SHOW synchronous_standby_names") == "nobody", 10, "the setting")
        threads.start(write, db, 1, "waits")
        eventually(lambda: pg.backends("wait_event = 'SyncRep' AND backend_type = 'client backend'"), 20, "a writer waits")
        with db.connect() as c:
            c.execute("SET synchronous_commit = local")
            c.execute("SELECT outbox.add_event('k', 'written', '1') FROM generate_series(1, 20)")
        nothing_pending(db)
        assert not pg.backends("wait_event = 'SyncRep' AND backend_type LIKE 'outbox%%'")
        assert len(kafka.consume(topic, until=20)) == 20
        pg.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        threads.join()
        nothing_pending(db)
        each_once(db, kafka, topic)
        assert len(kafka.consume(topic, until=21)) == 21
    finally:
        pg.configure(synchronous_standby_names="")
        pg.reload()
