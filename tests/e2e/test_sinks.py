"""Sinks come, change and go under load, and so do their databases: nothing is lost and nothing comes twice."""
import contextlib
import threading
import time

import psycopg
import pytest
from conftest import Database
from harness import checker
from harness.factor import scaled
from harness.wait import eventually, never
from harness.workload import Threads, make_sink, nothing_pending, relays

INSERT = """
    INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)
    SELECT CASE WHEN g %% 2 = 0 THEN 'order' ELSE 'payment' END, 'key-' || g %% 10, 'written', to_json(g) FROM generate_series(1, %s) g
"""


def write(db, events=20):
    db.sql(INSERT, [events])


@contextlib.contextmanager
def load(*dbs, events=20, pause=0.01):
    """A writer per database, so that the keys' order is the ids' order."""
    threads, over = Threads(), threading.Event()

    def body(db):
        with db.connect() as c:
            while not over.wait(pause):
                c.execute(INSERT, [events])
    for db in dbs:
        threads.start(body, db)
    try:
        yield
    finally:
        over.set()
    threads.join()


def published(db, sink="kafka"):
    return db.value("SELECT sum(published) FROM outbox.relays WHERE sink = %s", [sink]) or 0


def moves(db, sink="kafka"):
    before = published(db, sink)
    eventually(lambda: published(db, sink) > before, 15, f"{sink} publishes")


def has_stopped(db, state, sink="kafka"):
    """Waits until its relays themselves say so, beyond what was under way."""
    eventually(lambda: db.value("SELECT bool_and(r.state = %s) FROM outbox.live_relays() r JOIN outbox.sinks s USING (sink_id) WHERE s.name = %s",
                                [state, sink]), 10, f"{sink} is {state}")
    assert db.value("SELECT state FROM outbox.lag WHERE sink = %s", [sink]) == state


def each_once(db, kafka, topic, where="true"):
    events = checker.committed(db, where)
    records = kafka.consume(topic, until=checker.has_all(events))
    checker.check(events, records).must_hold(repeats=0)
    return events


# ---- servers -----------------------------------------------------------------------------------------------------------

@pytest.mark.matrix
def test_a_sink_dropped_and_created_again_under_load_goes_on_where_it_was(db, kafka, topic):
    make_sink(db, kafka, topic)
    with load(db):
        for _ in range(scaled(4)):
            moves(db)
            db.sql("DROP SERVER kafka CASCADE")
            make_sink(db, kafka, topic)
        moves(db)
    nothing_pending(db)
    each_once(db, kafka, topic)


def test_a_sink_dropped_and_created_again_in_one_transaction(db, kafka, topic):
    make_sink(db, kafka, topic)
    with load(db):
        for _ in range(scaled(3)):
            moves(db)
            db.sql(f"""BEGIN; DROP SERVER kafka CASCADE;
                CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka
                    OPTIONS (bootstrap_servers '{kafka.bootstrap}', topic '{topic}', format 'payload', lanes '2'); COMMIT""")
        moves(db)
        db.sql("BEGIN; DROP SERVER kafka CASCADE; ROLLBACK")
        moves(db)
    nothing_pending(db)
    each_once(db, kafka, topic)


def test_drop_server_is_refused_while_events_are_pending(db, kafka, topic):
    make_sink(db, kafka, topic)
    db.sql("SELECT outbox.pause('kafka')")
    write(db)
    with pytest.raises(psycopg.errors.ObjectInUse, match="pending"):
        db.sql("DROP SERVER kafka")
    db.sql("SELECT outbox.resume('kafka')")
    nothing_pending(db)
    db.sql("DROP SERVER kafka")
    eventually(lambda: not relays(db), 10, "its relay ends")


def test_a_renamed_sink_takes_its_position_along(db, kafka, topic):
    make_sink(db, kafka, topic, "a")
    with load(db):
        for old, new in [("a", "b"), ("b", "c"), ("c", "a")] * scaled(1):
            moves(db, old)
            db.sql(f"ALTER SERVER {old} RENAME TO {new}")
            moves(db, new)
    nothing_pending(db)
    each_once(db, kafka, topic)
    assert db.sql("SELECT sink FROM outbox.relays") == [("a",)]


def test_a_sink_that_forgets_begins_at_the_beginning(db, kafka):
    first, second = kafka.create_topic(), kafka.create_topic()
    make_sink(db, kafka, first)
    write(db)
    nothing_pending(db)
    db.sql("DROP SERVER kafka")
    db.sql("SELECT outbox.forget('kafka')")
    make_sink(db, kafka, second)
    nothing_pending(db)
    each_once(db, kafka, first)
    each_once(db, kafka, second)


def test_a_second_sink_starts_with_the_earliest_event_or_with_the_latest(db, kafka):
    topics = {name: kafka.create_topic() for name in ("first", "earliest", "latest")}
    make_sink(db, kafka, topics["first"], "first")
    with db.connect(autocommit=False) as late:
        # Has its ids before the sink is there and commits after: the sink's snapshot does not see it.
        late.execute("SELECT outbox.add_event('late', 'written', '0')")
        with load(db):
            moves(db, "first")
            with db.connect(autocommit=False) as c:
                xmax = []
                for start in ("earliest", "latest"):
                    c.execute(f"""CREATE SERVER {start} FOREIGN DATA WRAPPER outbox_kafka
                        OPTIONS (bootstrap_servers '{kafka.bootstrap}', topic '{topics[start]}', format 'payload', start '{start}')""")
                    xmax.append(c.execute("SELECT seen::text FROM outbox.progress p JOIN outbox.sinks s USING (sink_id) WHERE name = %s",
                                          [start]).fetchone()[0])
                c.commit()
            moves(db, "earliest")
            moves(db, "latest")
        late.commit()
    nothing_pending(db)
    everything = each_once(db, kafka, topics["first"])
    assert each_once(db, kafka, topics["earliest"]) == everything
    later = each_once(db, kafka, topics["latest"], f"NOT pg_visible_in_snapshot(xid, '{xmax[1]}')")
    assert 0 < len(later) < len(everything) and any(e.key == "late" for e in later)


def test_a_sink_that_is_created_while_others_write_takes_their_late_events(db, kafka, rng):
    """Whatever writers commit while it is made, nothing of it is taken for another cluster's: it has no floor."""
    with load(db, events=1, pause=0), load(db, events=1, pause=0), load(db, events=1, pause=0):
        for number in range(scaled(60)):
            db.sql(f"CREATE SERVER s{number} FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '{kafka.bootstrap}', topic 'none', start 'latest');"
                   f" SELECT outbox.pause('s{number}')")
            if number % 2:
                db.sql(f"DROP SERVER s{number} CASCADE; CREATE SERVER s{number} FOREIGN DATA WRAPPER outbox_kafka"
                       f" OPTIONS (bootstrap_servers '{kafka.bootstrap}', topic 'none')")
            assert db.sql("SELECT name, floor FROM outbox.sinks WHERE floor <> 0") == []
            db.sql(f"DROP SERVER s{number} CASCADE")


def test_a_paused_sink_waits_and_another_one_does_not(db, kafka):
    a, b = kafka.create_topic(), kafka.create_topic()
    make_sink(db, kafka, a, "a")
    make_sink(db, kafka, b, "b")
    with load(db):
        for _ in range(scaled(2)):
            moves(db, "a")
            db.sql("SELECT outbox.pause('a')")
            has_stopped(db, "paused", "a")
            before = published(db, "a")
            eventually(lambda: db.value("SELECT pending FROM outbox.lag WHERE sink = 'a'") > 0, 10, "events wait")
            moves(db, "b")
            assert published(db, "a") == before
            db.sql("SELECT outbox.resume('a')")
        moves(db, "a")
    nothing_pending(db)
    each_once(db, kafka, a)
    each_once(db, kafka, b)


def test_publishing_is_switched_off_and_on_by_reload(db, kafka, topic):
    make_sink(db, kafka, topic)
    try:
        with load(db):
            for _ in range(scaled(2)):
                moves(db)
                db.pg.configure(outbox__publish="off")
                db.pg.reload()
                has_stopped(db, "off")
                before = published(db)
                never(lambda: published(db) > before, 0.5, "it goes on")
                db.pg.configure(outbox__publish="on")
                db.pg.reload()
            moves(db)
    finally:
        db.pg.configure(outbox__publish="on")
        db.pg.reload()
    nothing_pending(db)
    each_once(db, kafka, topic)


def test_each_sink_gets_the_events_that_it_asks_for(db, kafka):
    wanted = {"orders": ("order/*", "aggregate_type = 'order'"), "payments": ("payment/*,refund/*", "aggregate_type = 'payment'"),
              "none": ("*/never", "false")}
    topics = {}
    for name, (events, _) in wanted.items():
        topics[name] = kafka.create_topic()
        make_sink(db, kafka, topics[name], name, events=events, lanes=2)
    with load(db):
        moves(db, "orders")
        moves(db, "payments")
        db.sql("ALTER SERVER orders OPTIONS (SET events 'order/written')")
        moves(db, "orders")
    nothing_pending(db)
    for name, (_, where) in wanted.items():
        each_once(db, kafka, topics[name], where)


# ---- databases -----------------------------------------------------------------------------------------------------------

def test_several_databases_of_one_server_publish_side_by_side(make_db, kafka):
    dbs = [make_db() for _ in range(3)]
    topics = [kafka.create_topic() for _ in dbs]
    for db, topic in zip(dbs, topics, strict=True):
        make_sink(db, kafka, topic)
    with load(*dbs):
        for db in dbs:
            moves(db)
    for db, topic in zip(dbs, topics, strict=True):
        nothing_pending(db)
        each_once(db, kafka, topic)


@pytest.mark.matrix
def test_the_extension_is_dropped_while_it_publishes_and_created_again(db, kafka, mock):
    """B47."""
    mock.cmd("topic t 1")
    mock.cmd("rtt -1 100")
    before = db.pg.mark()
    for _ in range(scaled(5)):
        make_sink(db, mock, "t")
        write(db, 50)
        eventually(lambda: relays(db), 20, "a relay")
        db.sql("DROP EXTENSION outbox CASCADE")
        db.sql("CREATE EXTENSION outbox")
    # In one transaction, too.
    make_sink(db, mock, "t")
    write(db, 50)
    db.sql("BEGIN; DROP EXTENSION outbox CASCADE; CREATE EXTENSION outbox; COMMIT")
    topic = kafka.create_topic()
    make_sink(db, kafka, topic)
    with load(db):
        moves(db)
    nothing_pending(db)
    each_once(db, kafka, topic)
    log = db.pg.log_since(before)
    assert "ERROR" not in log and "does not exist" not in log and "deadlock" not in log, log


def waits_for_a_broker(db):
    db.sql("""CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka
              OPTIONS (bootstrap_servers '127.0.0.1:1', topic 't', delivery_timeout '1s')""")
    write(db)
    eventually(lambda: db.value("SELECT state FROM outbox.lag") == "backing_off", 20, "it waits for the broker")


def in_the_middle(db):
    """A batch that nobody answers is under way."""
    db.sql("""CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka
              OPTIONS (bootstrap_servers '127.0.0.1:1', topic 't', delivery_timeout '60s')""")
    write(db)
    eventually(lambda: db.value("SELECT state FROM outbox.lag") == "running", 20, "a batch is under way")


@pytest.mark.parametrize("state", ["idle", "waiting for the broker", "in the middle of a batch"])
def test_a_database_is_dropped_renamed_and_copied_while_its_relays_run(make_db, kafka, topic, state):
    """B45."""
    db = make_db()
    pg = db.pg
    if state == "idle":
        make_sink(db, kafka, topic, lanes=2)
        write(db)
        nothing_pending(db)
    else:
        waits_for_a_broker(db) if state == "waiting for the broker" else in_the_middle(db)

    def quickly(sql):
        begin = time.monotonic()
        pg.sql(sql)
        took = time.monotonic() - begin
        assert took < 5, f"{sql} took {took:.1f} s"
    # Of another database: no process of ours may keep it waiting.
    quickly(f"CREATE DATABASE {db.name}_other")
    quickly(f"DROP DATABASE {db.name}_other")
    quickly(f"CREATE DATABASE {db.name}_copy TEMPLATE {db.name}")
    eventually(lambda: relays(db), 20, "its relays run again")
    quickly(f"ALTER DATABASE {db.name} RENAME TO {db.name}_new")
    renamed = Database(pg, f"{db.name}_new")
    eventually(lambda: relays(renamed), 20, "its relays run again")
    if state == "idle":
        # A relay that lags behind its database's name, or its copy, would show here.
        write(renamed)
        nothing_pending(renamed)
        each_once(renamed, kafka, topic)
    quickly(f"DROP DATABASE {renamed.name}")
    quickly(f"DROP DATABASE {db.name}_copy")
    before = pg.mark()
    never(lambda: "does not exist" in pg.log_since(before), 1.0, "a worker is started in a database that is not there")


def test_a_copy_of_a_database_is_halted_until_it_is_told_to_publish(make_db, kafka, topic):
    db = make_db()
    make_sink(db, kafka, topic)
    write(db)
    nothing_pending(db)
    db.sql("SELECT outbox.pause('kafka')")
    write(db)  # pending in both
    db.pg.sql(f"CREATE DATABASE {db.name}_copy TEMPLATE {db.name}")
    copy = Database(db.pg, f"{db.name}_copy")
    try:
        db.sql("SELECT outbox.resume('kafka')")
        nothing_pending(db)
        write(copy)
        eventually(lambda: copy.value("SELECT state FROM outbox.lag") == "halted", 10, "the copy is halted")
        assert "outbox.resume" in copy.value("SELECT hint FROM outbox.health WHERE \"check\" = 'sink kafka'")
        each_once(db, kafka, topic)
        # The original does not publish any more, and the copy is to.
        db.sql("DROP SERVER kafka")
        new = kafka.create_topic()
        copy.sql(f"ALTER SERVER kafka OPTIONS (SET topic '{new}')")
        copy.sql("SELECT outbox.resume('kafka')")
        nothing_pending(copy)
        # What was pending when the copy was made, and what was written since.
        pending = 2 * 20
        assert len(kafka.consume(new, until=pending)) == pending
        each_once(copy, kafka, new, "id > 20")
    finally:
        db.pg.sql(f"DROP DATABASE IF EXISTS {copy.name} WITH (FORCE)")
