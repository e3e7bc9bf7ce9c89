"""Replays: what a sink has published already is sent again, beside the live events and without touching their order."""
import signal

import psycopg
import pytest
from harness import checker
from harness.wait import eventually, never
from harness.workload import Threads, make_sink, nothing_pending

STATE = "SELECT state FROM outbox.replays WHERE id = %s"
PIDS = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox replay' AND datname = current_database()"


def write(db, n, keys=7, key="key-", aggregate_type="order"):
    db.sql("SELECT outbox.add_event(%s || g %% %s, 'changed', to_json(g)::text, %s) FROM generate_series(1, %s) g", [key, keys, aggregate_type, n])


def published(db, where="true"):
    """Ids of events in the log, in its order; nothing is pending."""
    nothing_pending(db)
    return [e for e, in db.sql(f"SELECT event_id::text FROM outbox.events WHERE {where} ORDER BY id")]


def replay(db, *arguments, sink="kafka"):
    marks = ", ".join(["%s"] * (len(arguments) + 1))
    return db.value(f"SELECT outbox.replay({marks})", [sink, *arguments])


def ended(db, number, state="done", timeout=60):
    eventually(lambda: db.value(STATE, [number]) == state, timeout, lambda: f"it is {state}: {db.sql('SELECT * FROM outbox.replays')}")
    return db.sql("SELECT sent, skipped, last_error FROM outbox.replays WHERE id = %s", [number])[0]


def parts(records):
    """(live, replayed) records."""
    marked = [r.header("outbox-replay") is not None for r in records]
    return [r for r, m in zip(records, marked, strict=True) if not m], [r for r, m in zip(records, marked, strict=True) if m]


@pytest.fixture
def rate(pg):
    """rate(n): so many events a second from now on."""
    def set_rate(n):
        pg.configure(outbox__replay_rate=n)
        pg.reload()
        eventually(lambda: pg.value("SELECT current_setting('outbox.replay_rate')") == str(n), 10, "the setting")
    yield set_rate
    set_rate(1000)


@pytest.mark.matrix
def test_published_events_between_two_times_come_again_in_order_the_same_but_for_a_header(db, kafka, topic):
    make_sink(db, kafka, topic, events="order/*", lanes=3)
    write(db, 100)
    write(db, 20, aggregate_type="other")
    between = db.value("SELECT clock_timestamp()")
    write(db, 150)
    until = db.value("SELECT clock_timestamp()")
    write(db, 100)
    assert published(db)
    number = replay(db, between, until)
    assert ended(db, number) == (150, 0, None)
    live, again = parts(kafka.consume(topic, until=350 + 150))
    expected = [e for e, in db.sql("SELECT event_id::text FROM outbox.events WHERE created_at >= %s AND created_at < %s ORDER BY id", [between, until])]
    assert [r.header("event_id") for r in again] == expected
    first = {r.header("event_id"): r for r in live}
    for r in again:
        one = first[r.header("event_id")]
        assert (r.key, r.value) == (one.key, one.value) and r.headers == [*one.headers[:3], ("outbox-replay", b"true"), *one.headers[3:]]
    checker.check(checker.committed(db, "aggregate_type = 'order'"), live).must_hold(repeats=0)
    # Of one key, up to now.
    number = replay(db, between, None, "key-3")
    of_key = [e for e, in db.sql("SELECT event_id::text FROM outbox.events WHERE created_at >= %s AND aggregate_id = 'key-3' ORDER BY id", [between])]
    assert ended(db, number) == (len(of_key), 0, None)
    again = parts(kafka.consume(topic, until=500 + len(of_key)))[1]
    assert [r.header("event_id") for r in again[150:]] == of_key
    eventually(lambda: db.sql(PIDS) == [], 20, "nobody replays when there is nothing to replay")
    assert db.value("SELECT sum(published) FROM outbox.relays") == 350, "a repeat is no event of the lanes"


def test_what_is_pending_parked_or_discarded_is_not_replayed(db, kafka, topic):
    """Also what is late: a transaction that was open when its lane went by."""
    make_sink(db, kafka, topic)
    write(db, 30)
    for key in ("parked", "discarded"):
        db.sql("SELECT outbox.add_event(%s, 'changed', '1', topic => %s)", [key, f"{topic}-missing"])
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 2, 30, "they are parked")
    db.sql("SELECT outbox.discard('kafka', event_id, 'for once') FROM outbox.parked WHERE aggregate_id = 'discarded'")
    with db.connect(autocommit=False) as late, db.connect(autocommit=False) as sitting:
        late.execute("SELECT outbox.add_event('key-1', 'changed', '\"late\"')")
        write(db, 10)
        nothing_pending(db)
        sitting.execute("SELECT FROM outbox.lanes FOR UPDATE")  # the lane stands still
        late.commit()
        write(db, 10, key="pending-")
        assert db.value("SELECT count(*) FROM outbox.pending") == 11
        assert ended(db, replay(db, None)) == (40, 0, None)
        sitting.commit()
    nothing_pending(db)
    live, again = parts(kafka.consume(topic, until=40 + 40 + 11))
    assert [r.header("event_id") for r in again] == [r.header("event_id") for r in live[:40]]
    assert {r.header("event_id") for r in live[40:]} == {e for e, in db.sql("SELECT event_id::text FROM outbox.events WHERE aggregate_id LIKE 'pending-%%' OR payload::text = '\"late\"'")}


def test_a_sink_that_began_with_the_latest_gets_by_a_replay_what_was_there_before(db, kafka, topic):
    write(db, 50)
    make_sink(db, kafka, topic, start="latest")
    write(db, 5)
    nothing_pending(db)
    assert ended(db, replay(db, None)) == (55, 0, None)
    live, again = parts(kafka.consume(topic, until=60))
    assert len(live) == 5 and [r.header("event_id") for r in again] == published(db)


def test_it_keeps_to_its_rate_and_can_be_stopped(db, kafka, topic, rate):
    """No more than the rate allows for the time that has passed, and the slice that is on its way."""
    rate(200)
    make_sink(db, kafka, topic)
    write(db, 5000)
    nothing_pending(db)
    first, second = replay(db, None), replay(db, None)
    rows = []

    def row():
        rows.append(db.sql("SELECT sent, extract(epoch FROM clock_timestamp() - started_at)::float8, state FROM outbox.replays WHERE id = %s", [first])[0])
        return rows[-1][0]
    eventually(lambda: row() >= 200, 30, "some are sent again")
    assert all(sent <= 200 * seconds + 50 for sent, seconds, _ in rows), rows
    assert rows[-1][2] == "running" and db.value(STATE, [second]) == "queued"
    checks = db.sql("SELECT \"check\", ok, detail FROM outbox.health WHERE \"check\" LIKE 'sink kafka: replay%%' ORDER BY 1")
    assert [(c, ok) for c, ok, _ in checks] == [(f"sink kafka: replay {first}", True), (f"sink kafka: replay {second}", True)], checks
    assert db.value("SELECT outbox.stop_replay(%s)", [second]) is True
    assert db.value("SELECT outbox.stop_replay(%s)", [first]) is True
    assert db.value("SELECT outbox.stop_replay(%s)", [first]) is False
    with pytest.raises(psycopg.errors.UndefinedObject, match="there is no replay 4711"):
        db.sql("SELECT outbox.stop_replay(4711)")
    eventually(lambda: db.sql(PIDS) == [], 20, "its process has ended")
    sent = db.value("SELECT sent FROM outbox.replays WHERE id = %s", [first])
    assert sent < 5000 and db.sql("SELECT state, sent FROM outbox.replays WHERE id = %s", [second]) == [("stopped", 0)]
    assert len(parts(kafka.consume(topic))[1]) == sent
    rate(1000)
    assert ended(db, replay(db, None, None, "key-1"))[0] == db.value("SELECT count(*) FROM outbox.events WHERE aggregate_id = 'key-1'"), "the next one goes"


def test_nonsense_is_refused(db, kafka, topic):
    make_sink(db, kafka, topic)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="since must be before until"):
        replay(db, "2030-01-02", "2030-01-01")
    with pytest.raises(psycopg.errors.UndefinedObject, match='there is no sink "no such"'):
        replay(db, None, sink="no such")
    assert ended(db, replay(db, None)) == (0, 0, None), "an empty log is soon replayed"
    write(db, 3)
    nothing_pending(db)
    assert ended(db, replay(db, "2030-01-01", "infinity")) == (0, 0, None)
    db.sql("DROP SERVER kafka")
    with pytest.raises(psycopg.errors.UndefinedObject, match='sink "kafka" was dropped'):
        replay(db, None)


def test_live_events_flow_while_a_replay_stands_still_and_their_order_stands(db, kafka, topic, rate):
    """It is a process of its own. The same keys are written all the while: the first time that each event comes it is in order."""
    rate(100)
    make_sink(db, kafka, topic, lanes=2)
    write(db, 3000)
    nothing_pending(db)
    number = replay(db, None)
    eventually(lambda: db.value("SELECT sent FROM outbox.replays") > 0, 20, "it is under way")
    (pid,), = db.sql(PIDS)
    db.pg.signal(pid, signal.SIGSTOP)
    try:
        write(db, 200)
        nothing_pending(db)
        assert db.value("SELECT state FROM outbox.lag") in ("running", "idle")
    finally:
        db.pg.signal(pid, signal.SIGCONT)
    rate(5000)
    threads = Threads()
    threads.start(lambda: [write(db, 5) for _ in range(100)])
    assert ended(db, number) == (3000, 0, None)
    threads.join()
    nothing_pending(db)
    live, again = parts(kafka.consume(topic, until=3000 + 200 + 500 + 3000))
    assert len(again) == 3000
    checker.check(checker.committed(db), live).must_hold(repeats=0)


def test_while_the_sink_is_down_it_waits_and_counts_nothing(db, mock, rate):
    mock.cmd("topic t 1")
    rate(200)
    make_sink(db, mock, "t", delivery_timeout="1s")
    write(db, 3000)
    nothing_pending(db)
    number = replay(db, None)
    eventually(lambda: db.value("SELECT sent FROM outbox.replays") > 0, 20, "it is under way")
    mock.freeze()
    eventually(lambda: db.value(STATE, [number]) == "backing_off", 30, "it knows")
    assert db.value("SELECT last_error FROM outbox.replays")
    eventually(lambda: db.sql(f"{PIDS} AND xact_start IS NULL"), 5, "it holds no transaction", interval=0.01)
    ok, hint = db.sql("SELECT ok, hint FROM outbox.health WHERE \"check\" = %s", [f"sink kafka: replay {number}"])[0]
    assert not ok and f"outbox.stop_replay({number})" in hint
    mock.resume()
    rate(5000)
    assert ended(db, number) == (3000, 0, None)
    assert db.value("SELECT count(*) FROM outbox.parked") == 0


def test_what_the_sink_does_not_take_any_more_is_skipped_and_shown(db, kafka, topic):
    """A topic takes smaller records than it did. Nothing is parked, and live events flow."""
    make_sink(db, kafka, topic)
    write(db, 10)
    db.sql("SELECT outbox.add_event('key-1', 'large', to_json(repeat('x', 50000)))")
    large = db.value("SELECT max(id) FROM outbox.events")
    write(db, 10)
    nothing_pending(db)
    kafka.alter_topic(topic, {"max.message.bytes": "10000"})
    sent, skipped, error = ended(db, replay(db, None))
    assert (sent, skipped) == (20, 1) and f"id {large}" in error, error
    assert db.value("SELECT count(*) FROM outbox.parked") == 0
    write(db, 1)
    nothing_pending(db)
    assert len(parts(kafka.consume(topic, until=42))[1]) == 20


def test_it_goes_with_its_sink(db, kafka, topic, rate):
    """Pause, publish off, another number of lanes, RENAME, DROP and CREATE: it waits or goes on, and nothing comes twice. What is
    forgotten of a sink takes its replays along."""
    rate(100)
    make_sink(db, kafka, topic)
    write(db, 3000)
    nothing_pending(db)
    number = replay(db, None)

    def sent():
        return db.value("SELECT sent FROM outbox.replays")

    def goes_on():
        before = sent()
        eventually(lambda: sent() > before, 30, lambda: f"it goes on: {db.sql('SELECT * FROM outbox.replays')}")

    def waits(state):
        eventually(lambda: db.value(STATE, [number]) == state, 20, state)
        before = sent()
        never(lambda: sent() > before + 25, 1, "more than the slice that was on its way")
    goes_on()
    db.sql("SELECT outbox.pause('kafka')")
    waits("paused")
    db.sql("SELECT outbox.resume('kafka')")
    goes_on()
    db.pg.configure(outbox__publish="off")
    db.pg.reload()
    try:
        waits("off")
    finally:
        db.pg.configure(outbox__publish="on")
        db.pg.reload()
    goes_on()
    db.sql("ALTER SERVER kafka OPTIONS (ADD lanes '3')")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.lanes") == 3, 20, "three lanes")
    goes_on()
    db.sql("ALTER SERVER kafka RENAME TO other")
    goes_on()
    db.sql("DROP SERVER other")
    waits("dropped")
    eventually(lambda: db.sql(PIDS) == [], 20, "nobody replays")
    make_sink(db, kafka, topic, "other", lanes=3)
    goes_on()
    rate(5000)
    assert ended(db, number) == (3000, 0, None)
    again = parts(kafka.consume(topic, until=6000))[1]
    assert [r.header("event_id") for r in again] == published(db)
    replay(db, None, sink="other")
    db.sql("DROP SERVER other CASCADE; SELECT outbox.forget('other')")
    assert db.value("SELECT count(*) FROM outbox.replay_requests") == 0
    eventually(lambda: db.sql(PIDS) == [], 20, "nobody replays")


def test_a_copy_does_not_go_on_with_what_was_asked_for_in_the_original(db, make_db, kafka, topic, rate):
    rate(1)
    make_sink(db, kafka, topic)
    write(db, 500)
    nothing_pending(db)
    number = replay(db, None)
    eventually(lambda: db.value(STATE, [number]) == "running", 20, "it is under way")
    copy = make_db(extension=False)
    copy.psql(db.dump())
    assert copy.value(STATE, [number]) == "halted"
    copy.sql("SELECT outbox.resume('kafka')")
    state, error = copy.sql("SELECT state, last_error FROM outbox.replays WHERE id = %s", [number])[0]
    assert state == "stopped" and "before the sink was resumed in this installation" in error
    db.sql("SELECT outbox.stop_replay(%s)", [number])


def test_neither_drop_extension_nor_drop_database_waits_for_it(make_db, kafka, rate):
    rate(100)
    for drop in ("extension", "database"):
        db, topic = make_db(), kafka.create_topic()
        make_sink(db, kafka, topic)
        write(db, 3000)
        nothing_pending(db)
        replay(db, None)
        eventually(lambda db=db: db.value("SELECT sent FROM outbox.replays") > 0, 20, "it is under way")
        if drop == "extension":
            db.sql("DROP EXTENSION outbox CASCADE")
            eventually(lambda db=db: db.sql(PIDS) == [], 20, "its process has ended")
        else:
            db.pg.sql(f"DROP DATABASE {db.name}")
