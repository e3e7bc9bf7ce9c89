"""A key that has a parked event keeps its order, whatever an operator or an outage does meanwhile."""
import json

from harness.wait import eventually
from harness.workload import make_sink, nothing_pending

from test_parked import dead  # noqa: F401  a fixture


def parked(db):
    return db.sql("SELECT payload::text, reason, topic FROM outbox.parked ORDER BY id")


def looks_again(db):
    """The sink's options are read anew."""
    db.sql("ALTER SERVER kafka OPTIONS (ADD linger_ms '1')")
    db.sql("ALTER SERVER kafka OPTIONS (DROP linger_ms)")


def test_what_waits_behind_a_parked_event_is_no_probe(db, mock, dead):  # noqa: F811
    """During an outage the first pending event tests the sink; an event of a gated key must not."""
    db.sql("ALTER SERVER kafka OPTIONS (ADD delivery_timeout '1s')")
    with db.connect(autocommit=False) as late:
        late.execute("SELECT outbox.add_event('k', 'x', '2')")
        mock.cmd("down -1")
        db.sql("SELECT outbox.add_event('other', 'x', '3')")
        eventually(lambda: db.value("SELECT state FROM outbox.lag") == "backing_off", 20, "an outage")
        late.commit()
    looks_again(db)
    mock.cmd("up -1")
    nothing_pending(db)
    assert [r.value for r in mock.consume("t", until=2)] == [b"0", b"3"]
    assert parked(db) == [("1", "dead", "t"), ("2", "behind", "t")]


def test_a_parked_event_keeps_its_place_when_the_sink_gets_another_topic(db, mock, dead):  # noqa: F811
    mock.cmd("topic u 1")
    db.sql("ALTER SERVER kafka OPTIONS (SET topic 'u')")
    db.sql("SELECT outbox.add_event('k', 'x', '2')")
    nothing_pending(db)
    assert parked(db) == [("1", "dead", "u"), ("2", "behind", "u")]
    db.sql("SELECT outbox.redrive('kafka')")
    assert [r.value for r in mock.consume("u", until=2)] == [b"1", b"2"]


def test_and_when_the_relay_was_not_there_then(db, mock, dead):  # noqa: F811
    """As parked rows of a restored copy are: outbox.resume does not know where to."""
    db.sql("SELECT outbox.pause('kafka')")
    db.sql("UPDATE outbox.parked_events SET destination = ''")
    db.sql("SELECT pg_terminate_backend(pid) FROM outbox.relays")
    db.sql("SELECT outbox.resume('kafka')")
    db.sql("SELECT outbox.add_event('k', 'x', '2')")
    nothing_pending(db)
    assert parked(db) == [("1", "dead", "t"), ("2", "behind", "t")]


def test_and_when_somebody_sat_on_it_then(db, mock, dead):  # noqa: F811
    mock.cmd("topic u 1")
    with db.connect(autocommit=False) as c:
        c.execute("SELECT 1 FROM outbox.parked_events FOR UPDATE")
        db.sql("ALTER SERVER kafka OPTIONS (SET topic 'u')")
        db.sql("SELECT outbox.add_event('other', 'x', '2')")
        assert [r.value for r in mock.consume("u", until=1)] == [b"2"]
        assert parked(db) == [("1", "dead", "t")]
    eventually(lambda: parked(db) == [("1", "dead", "u")], 20, "it follows")


def test_a_key_that_is_held_back_takes_nobody_s_turn(db, mock, dead):  # noqa: F811
    """However many of its events are due."""
    db.sql("""INSERT INTO outbox.parked_events (sink_id, id, event_id, aggregate_id, event_type, payload, created_at, destination, reason,
                                                attempts, next_attempt_at)
              SELECT sink_id, id + n, gen_random_uuid(), CASE WHEN n = 2500 THEN 'another' ELSE 'k' END, event_type, to_json(n), created_at,
                     destination, 'retry', 0, now() FROM outbox.parked_events, generate_series(1, 2500) n""")
    db.sql("SELECT outbox.add_event('other', 'x', '3')")
    looks_again(db)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked WHERE aggregate_id = 'another'") == 0, 20, "its own turn")
    assert sorted(json.loads(r.value) for r in mock.consume("t", until=3)) == [0, 3, 2500]
    assert db.sql("SELECT reason, count(*) FROM outbox.parked GROUP BY 1 ORDER BY 1")[1] == ("dead", 1)


def test_a_parked_event_is_tried_again_when_its_time_has_come_and_not_at_the_next_poll(make_pg, mock):
    pg = make_pg(conf={"outbox.poll_interval": "10min"})
    pg.sql("CREATE EXTENSION outbox")
    mock.cmd("topic_error t-x UNKNOWN_TOPIC_OR_PART")
    make_sink(pg, mock, "t-{event_type}", stall_timeout="1s")
    pg.sql("SELECT outbox.add_event('k', 'x', '1')")
    eventually(lambda: pg.value("SELECT count(*) FROM outbox.parked") == 1, 20, "it is parked")
    mock.cmd("topic_error t-x 0")
    eventually(lambda: pg.value("SELECT count(*) FROM outbox.parked") == 0, 40, "it is sent")
