"""The server log has a line for each change of a sink's state, and one a minute for its troubles, with the event's id."""
import re
import time

import pytest
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending, relays

PG_FLAVOUR = "faults"


def lines(db, mark):
    return [line for line in db.pg.log_since(mark).splitlines() if re.search(r"outbox relay (LOG|WARNING): +outbox: ", line)]


@pytest.mark.parametrize("seconds", [15, pytest.param(130, marks=pytest.mark.long)])
def test_a_sink_that_comes_and_goes_and_refuses_events_fills_no_log(db, mock, seconds):
    for topic in ("t", "bad"):
        mock.cmd(f"topic {topic} 2")
    make_sink(db, mock, "t", lanes=2, delivery_timeout="1s", stall_timeout="200ms")
    db.sql("SELECT outbox.add_event('k' || g, 'x', '0') FROM generate_series(1, 8) g")
    nothing_pending(db)
    mark, begin, rounds = db.pg.mark(), time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        rounds += 1
        # Refused as a request and alone: dead.
        mock.cmd("push_errors Produce " + ",".join(["MSG_SIZE_TOO_LARGE"] * 2))
        db.sql("SELECT outbox.add_event('guilty' || %s, 'x', '1')", [rounds])
        eventually(lambda: db.value("SELECT count(*) FROM outbox.pending") == 0, 20, "it is judged")
        mock.cmd("clear_errors Produce")
        mock.cmd("push_errors Produce OUT_OF_ORDER_SEQUENCE_NUMBER")
        db.sql("SELECT outbox.add_event('k' || g, 'x', '1') FROM generate_series(1, 8) g")
        eventually(lambda: db.value("SELECT count(*) FROM outbox.pending") == 0, 20, "a new producer")
        mock.cmd("down -1")
        db.sql("SELECT outbox.add_event('k' || g, 'x', '1') FROM generate_series(1, 8) g")
        eventually(lambda: db.value("SELECT bool_or(state = 'backing_off') FROM outbox.relays"), 20, "it is down")
        mock.cmd("up -1")
        nothing_pending(db, 30)
    took = time.monotonic() - begin
    said = lines(db, mark)
    print(f"{rounds} rounds in {took:.0f} s\n" + "\n".join(said))
    assert rounds >= 2
    # A minute has three: down, up again, and what else went wrong.
    assert len(said) <= 3 * (1 + took // 60), "\n".join(said)
    kinds = [re.sub(r'.*outbox: sink "kafka" lane \d ', "", line) for line in said]
    assert re.match(r"parked 1 events, the first with id \d+: .*large", kinds[0]) or kinds[0].startswith("makes a new producer"), said
    assert any(kind.startswith("is down: ") for kind in kinds) and any(kind.startswith("is up again") for kind in kinds), said
    # What has been kept back comes when the relay ends, at the latest.
    old = relays(db)
    db.sql("SELECT pg_terminate_backend(pid) FROM outbox.relays")
    eventually(lambda: relays(db) and not set(relays(db)) & set(old), 20, "other relays")
    rest = lines(db, mark)[len(said):]
    assert 1 <= len(rest) <= 3 and any(re.search(r"\(and \d+ more lines within a minute\)", line) for line in rest), rest


def test_of_a_sink_with_several_lanes_one_says_that_it_is_down_and_up_again(db, mock):
    mock.cmd("topic t 4")
    make_sink(db, mock, "t", lanes=4, delivery_timeout="1s")
    db.sql("SELECT outbox.add_event('k' || g, 'x', '0') FROM generate_series(1, 40) g")
    nothing_pending(db)
    mark = db.pg.mark()
    mock.cmd("down -1")
    db.sql("SELECT outbox.add_event('k' || g, 'x', '1') FROM generate_series(1, 40) g")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.relays WHERE state = 'backing_off'") == 4, 20, "all are down")
    mock.cmd("up -1")
    nothing_pending(db)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.relays WHERE state = 'idle'") == 4, 20, "all are up again")
    said = lines(db, mark)
    assert [re.search(r"lane (\d) is (down|up again)", line).groups() for line in said] == [
        (said and re.search(r"lane (\d)", said[0])[1], state) for state in ("down", "up again")], said


def test_what_was_ordered_is_said_once_for_all_lanes_and_when_it_is_over(db, mock):
    mock.cmd("topic t 2")
    make_sink(db, mock, "t", lanes=2)
    db.sql("SELECT outbox.add_event('k' || g, 'x', '0') FROM generate_series(1, 8) g")
    nothing_pending(db)
    mark = db.pg.mark()

    def in_state(state):
        eventually(lambda: db.value("SELECT count(*) FROM outbox.relays WHERE state = %s", [state]) == 2, 20, f"both lanes are {state}")
    try:
        for order, state in (("SELECT outbox.pause('kafka')", "paused"), ("SELECT outbox.resume('kafka')", "idle"),
                             ("ALTER SYSTEM SET outbox.publish = off", "off"), ("ALTER SYSTEM SET outbox.publish = on", "idle"),
                             ("ALTER SYSTEM SET outbox.instance = 'another'", "halted"), ("ALTER SYSTEM RESET outbox.instance", "idle")):
            db.sql(order)
            db.sql("SELECT pg_reload_conf()")
            in_state(state)
    finally:
        db.sql("ALTER SYSTEM RESET outbox.publish")
        db.sql("ALTER SYSTEM RESET outbox.instance")
        db.sql("SELECT pg_reload_conf()")
    said = [re.sub(r'.* (LOG|WARNING): +outbox: sink "kafka" ', "", line) for line in lines(db, mark)]
    assert [re.sub(":.*|,.*", "", line) for line in said] == [
        "is paused", "goes on", "sends nothing", "goes on", "is halted and sends nothing", "goes on"], said


def test_a_database_without_a_place_says_so(make_pg):
    """The 257th database of a server; here the third."""
    pg = make_pg(flavour="faults", conf={"outbox.fault": "few_databases"})
    mark = pg.mark()
    pg.sql("CREATE DATABASE third")

    def third(query):
        with pg.connect(dbname="third") as c:
            return c.execute(query).fetchall()
    with pg.connect(dbname="third") as c:
        c.execute("CREATE EXTENSION outbox")
        c.execute("CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', topic 't')")
    line = "1 databases get no relays: a server may have 256"
    eventually(lambda: line in pg.log_since(mark), 20, "the log says so")
    check = "SELECT ok, hint FROM outbox.health WHERE \"check\" = 'databases'"
    eventually(lambda: third(check)[0][0] is False, 20, "outbox.health says so")
    assert "ALLOW_CONNECTIONS" in third(check)[0][1]
    pg.configure(outbox__fault="")
    pg.reload()
    eventually(lambda: third("SELECT pid IS NOT NULL FROM outbox.relays")[0][0], 20, "a relay")
    assert third(check) == [(True, None)]
    assert pg.log_since(mark).count(line) == 1 and "there is room for every database again" in pg.log_since(mark)
