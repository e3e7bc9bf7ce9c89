"""However an event is written, it leaves when its transaction commits, and not before; no wake-up is lost, and none is given without
a commit."""
import statistics
import time

import pytest
from harness import checker
from harness.factor import scaled
from harness.wait import eventually, never
from harness.workload import make_sink, nothing_pending

# Whether a query of a relay's ran is counted, so that it shows what wakes one.
PG_CONF = {"shared_preload_libraries": "outbox,pg_stat_statements", "pg_stat_statements.track": "all"}
LOOKS = """SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND query LIKE '%FROM outbox.events_%ORDER BY id LIMIT%'"""


@pytest.fixture
def sink(db, kafka, topic):
    """A sink whose relay idles: everything that there is is on the topic."""
    db.sql("CREATE EXTENSION pg_stat_statements")
    make_sink(db, kafka, topic)
    eventually(lambda: db.value("SELECT state FROM outbox.lag") == "idle", 20, "the relay idles")
    return topic


def each_once(db, kafka, topic):
    nothing_pending(db)
    events = checker.committed(db)
    checker.check(events, kafka.consume(topic, until=checker.has_all(events))).must_hold(repeats=0)
    return events


def values(kafka, topic, count):
    return [int(r.value) for r in kafka.consume(topic, until=count)]


@pytest.mark.matrix
def test_savepoints(db, kafka, sink):
    db.sql("""
        BEGIN;
        SELECT outbox.add_event('k', 'x', '1');
        SAVEPOINT a; SELECT outbox.add_event('k', 'x', '2'); ROLLBACK TO a;
        SAVEPOINT b; SELECT outbox.add_event('k', 'x', '3'); RELEASE b;
        SAVEPOINT c; SAVEPOINT d; SELECT outbox.add_event('k', 'x', '4'); RELEASE d; ROLLBACK TO c;
        SELECT outbox.add_event('k', 'x', '5');
        COMMIT""")
    assert values(kafka, sink, 3) == [1, 3, 5]
    each_once(db, kafka, sink)


def test_an_event_alone_in_a_subtransaction_wakes_the_relay_too(db, kafka, sink):
    db.pg.configure(outbox__poll_interval="1h")
    db.pg.reload()
    try:
        db.sql("BEGIN; SAVEPOINT a; SELECT outbox.add_event('k', 'x', '1'); RELEASE a; COMMIT")
        assert values(kafka, sink, 1) == [1]
        db.sql("DO $$ BEGIN PERFORM outbox.add_event('k', 'x', '2'); EXCEPTION WHEN others THEN NULL; END $$")
        assert values(kafka, sink, 2) == [1, 2]
    finally:
        db.pg.configure(outbox__poll_interval="1s")
        db.pg.reload()


@pytest.mark.matrix
def test_prepared_transactions_leave_with_commit_prepared(db, kafka, sink):
    """B04."""
    db.sql("BEGIN; SELECT outbox.add_event('k', 'x', '1'); PREPARE TRANSACTION 'one'")
    db.sql("BEGIN; SELECT outbox.add_event('k', 'x', '2'); PREPARE TRANSACTION 'two'")
    db.sql("SELECT outbox.add_event('other', 'x', '3')")
    assert values(kafka, sink, 1) == [3]
    never(lambda: kafka.end_offsets(sink) != {0: 1}, 1.5, "a prepared event is published", interval=0.3)
    assert db.value("SELECT pending FROM outbox.lag") == 0
    db.sql("ROLLBACK PREPARED 'two'")
    begin = time.monotonic()
    db.sql("COMMIT PREPARED 'one'")  # wakes nobody: found by the next poll
    assert values(kafka, sink, 2) == [3, 1]
    assert time.monotonic() - begin < 3
    each_once(db, kafka, sink)


def test_copy(db, kafka, sink):
    rows = scaled(5000)
    with db.connect() as c, c.cursor() as cursor, \
            cursor.copy("COPY outbox.events (aggregate_id, event_type, payload, headers) FROM STDIN") as copy:
        for row in range(rows):
            copy.write_row((f"k{row % 7}", "copied", str(row), '{"h": "1"}'))
    assert len(each_once(db, kafka, sink)) == rows
    assert sorted(values(kafka, sink, rows)) == list(range(rows))


def test_insert_select_of_many_rows(db, kafka, sink):
    rows = scaled(30_000)
    db.sql("INSERT INTO outbox.events (aggregate_id, event_type, payload) SELECT 'k' || g %% 7, 'x', to_json(g) FROM generate_series(1, %s) g",
           [rows])
    assert len(each_once(db, kafka, sink)) == rows


def test_triggers_in_plpgsql(db, kafka, sink):
    db.sql("""
        CREATE TABLE orders (id int PRIMARY KEY, state text);
        CREATE FUNCTION announce() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM outbox.add_event(NEW.id, 'order_' || NEW.state, to_jsonb(NEW), aggregate_type => 'order');
            BEGIN
                INSERT INTO outbox.events (aggregate_id, event_type) VALUES (NEW.id, 'in/valid');
            EXCEPTION WHEN check_violation OR invalid_parameter_value THEN NULL;
            END;
            RETURN NEW;
        END $$;
        CREATE TRIGGER announce AFTER INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION announce();
        INSERT INTO orders SELECT g, 'placed' FROM generate_series(1, 10) g;
        UPDATE orders SET state = 'paid' WHERE id <= 5""")
    db.sql("BEGIN; UPDATE orders SET state = 'lost'; ROLLBACK")
    records = kafka.consume(sink, until=15)
    assert [r.header("event_type") for r in records] == ["order_placed"] * 10 + ["order_paid"] * 5
    each_once(db, kafka, sink)


@pytest.mark.parametrize("setting", ["off", "local", "on"])
def test_synchronous_commit(db, kafka, sink, setting):
    with db.connect() as c:
        c.execute(f"SET synchronous_commit = {setting}")
        for number in range(scaled(50)):
            c.execute("SELECT outbox.add_event('k', 'x', %s)", [str(number)])
    assert values(kafka, sink, scaled(50)) == list(range(scaled(50)))
    each_once(db, kafka, sink)


def test_of_many_commits_none_loses_its_wake_up(db, kafka, sink):
    """B06. The poll that would find an event whose wake-up was lost comes too late for this."""
    db.pg.configure(outbox__poll_interval="1h")
    db.pg.reload()
    try:
        slowest = 0
        with db.connect() as c, db.connect() as watch:
            for number in range(scaled(1000)):
                # Each at another moment of the relay's going to sleep.
                if number % 4:
                    time.sleep((number % 20) * 0.0002)
                c.execute("SELECT outbox.add_event('k', 'x', %s)", [str(number)])
                if number % 10 == 9:
                    begin = time.monotonic()
                    eventually(lambda n=number + 1: watch.execute("SELECT published FROM outbox.relays").fetchone()[0] == n, 30,
                               f"event {number} is published", interval=0.002)
                    slowest = max(slowest, time.monotonic() - begin)
        assert slowest < 1, f"one was published {slowest:.2f} s after its commit"
        assert len(each_once(db, kafka, sink)) == scaled(1000)
    finally:
        db.pg.configure(outbox__poll_interval="1s")
        db.pg.reload()


def test_after_any_commits_the_relay_can_be_woken(db, kafka, sink, rng):
    """Some commits come just when the relay goes to sleep, or looks by itself. None of them may leave it deaf until its next look."""
    with db.connect() as c, db.connect() as watch:
        count = 0

        def commit():
            nonlocal count
            count += 1
            c.execute("SELECT outbox.add_event('k', 'x', %s)", [str(count)])

        def published():
            return watch.execute("SELECT published FROM outbox.relays").fetchone()[0] == count

        def timed():
            commit()
            begin = time.monotonic()
            eventually(published, 30, f"event {count} is published", interval=0.001)
            return time.monotonic() - begin
        for _ in range(scaled(5)):
            for _ in range(200):
                commit()
                time.sleep(0.004 * rng.random())
            time.sleep(1 + 0.02 * rng.random())  # it looks by itself once a second
            took = statistics.median(timed() for _ in range(9))
            assert took < 0.2, f"events wait {took:.2f} s for the next look"
        each_once(db, kafka, sink)


def test_what_is_not_committed_wakes_nobody(db, kafka, sink):
    """B06."""
    db.pg.configure(outbox__poll_interval="1h")
    db.pg.reload()
    try:
        with db.connect() as count, db.connect(autocommit=False) as c:
            def looks():
                return count.execute(LOOKS).fetchone()[0]

            def before_and_after(pause):
                before = looks()
                time.sleep(pause)
                return before, looks()
            # The reload itself is a reason to look.
            eventually(lambda: len(set(before_and_after(0.5))) == 1, 10, "the relay sleeps")
            before = looks()
            assert before > 0
            c.execute("SELECT count(outbox.add_event('k', 'x', '1')) FROM generate_series(1, %s)", [scaled(100_000)])
            c.rollback()
            for _ in range(20):
                c.execute("SAVEPOINT s")
                c.execute("SELECT outbox.add_event('k', 'x', '1')")
                c.execute("ROLLBACK TO s")
                c.rollback()
            after = looks()
            assert after == before, f"{after - before} looks without a commit"
        db.sql("SELECT outbox.add_event('k', 'x', '7')")
        assert values(kafka, sink, 1) == [7]
    finally:
        db.pg.configure(outbox__poll_interval="1s")
        db.pg.reload()
