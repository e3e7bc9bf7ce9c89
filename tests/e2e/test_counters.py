"""What the relays count: it is true, it survives, and it never goes backwards."""
import re
import time

from harness import env
from harness.wait import eventually
from harness.workload import Killer, make_sink, nothing_pending, relays

TOTALS = "published_total unparked_total bytes_total batches_total late_total errors_outage_total errors_stuck_total errors_poison_total" \
         " errors_producer_total errors_internal_total errors_order_total parked_retry_total parked_dead_total parked_behind_total" \
         " delivery_seconds_sum delivery_seconds_count batch_events_sum batch_events_count".split()


def metrics(db, sink="kafka"):
    """The sink's row of outbox.metrics, by column."""
    with db.connect() as c:
        cursor = c.execute("SELECT * FROM outbox.metrics WHERE sink = %s", [sink])
        row = cursor.fetchone()
        return row and dict(zip((d.name for d in cursor.description), row, strict=True))


def totals(db, sink="kafka"):
    found = metrics(db, sink)
    return {name: found[name] for name in TOTALS}


def become(db, timeout=20, sink="kafka", **expected):
    """Waits until these metrics have these values; they are saved every three seconds."""
    def there():
        found = metrics(db, sink)
        wrong = {name: found[name] for name, value in expected.items() if found[name] != value}
        assert not wrong, f"{wrong}, expected {expected}"
        return found
    return eventually(there, timeout, "the metrics", interval=0.2)


def write(db, events, key="key-' || g % 20 || '", first=1, topic=None):
    db.sql(f"SELECT outbox.add_event('{key}', 'written', repeat('x', 8)::bytea, topic => {f'$q${topic}$q$' if topic else 'NULL'})"
           f" FROM generate_series({first}, {first + events - 1}) g")


def valid(found):
    """A histogram as Prometheus wants it."""
    for name in ("delivery_seconds", "batch_events"):
        bounds, covered = found[name], found[f"{name}_bucket"]
        assert len(bounds) == len(covered) and sorted(bounds) == bounds and sorted(covered) == covered, found
        assert covered[-1] <= found[f"{name}_count"]


def test_each_event_is_counted_once_and_a_planned_stop_loses_no_count(db, kafka, topic):
    make_sink(db, kafka, topic, lanes=2)
    assert all(value == 0 for value in totals(db).values()), "0 from the first second"
    write(db, 300)
    nothing_pending(db)
    # Right away: they are saved when the relays end.
    db.pg.restart()
    found = become(db, published_total=300, bytes_total=2400, delivery_seconds_count=300, batch_events_sum=300)
    valid(found)
    assert 2 <= found["batches_total"] == found["batch_events_count"] <= 300
    # Nobody's clock was behind, and nothing took longer than the test.
    assert 0 < found["delivery_seconds_sum"] < 300 * 120
    assert found["delivery_seconds_bucket"][-1] == 300 and found["batch_events_bucket"][-1] == found["batches_total"]
    assert found["late_total"] == found["errors_outage_total"] == found["parked_dead_total"] == found["unparked_total"] == 0
    write(db, 50, key="k")
    nothing_pending(db)
    db.sql("SELECT pg_terminate_backend(pid) FROM outbox.relays")
    become(db, published_total=350, bytes_total=2800, delivery_seconds_count=350, batch_events_sum=350)


def test_they_are_saved_by_themselves_and_a_crash_takes_the_last_of_them_alone(db, kafka, topic, rng):
    make_sink(db, kafka, topic)
    write(db, 100)
    nothing_pending(db)
    become(db, published_total=100, bytes_total=800)
    write(db, 100)
    nothing_pending(db)
    Killer(db, rng).crash()
    found = become(db, published_total=200)
    assert found["bytes_total"] in (800, 1600), "what was saved stays; published is recorded with each batch"
    write(db, 1)
    nothing_pending(db)
    before = found["bytes_total"]
    become(db, published_total=201, bytes_total=before + 8)


def test_no_count_of_a_sink_goes_backwards_but_by_forget(db, kafka, topic):
    make_sink(db, kafka, topic, lanes=3)
    seen, name = totals(db), "kafka"

    def grown(what):
        nonlocal seen
        now = totals(db, name)
        assert all(now[key] >= seen[key] for key in TOTALS), (what, seen, now)
        seen = now

    def more():
        write(db, 100)
        nothing_pending(db)
    more()
    for lanes in (1, 2):
        db.sql(f"ALTER SERVER kafka OPTIONS (SET lanes '{lanes}')")
        eventually(lambda lanes=lanes: grown("lanes") or db.value("SELECT count(*) FROM outbox.lanes") == lanes, 30, f"{lanes} lanes", interval=0.02)
        more()
    become(db, published_total=300, delivery_seconds_count=300, batch_events_sum=300)
    grown("saved")
    db.sql("ALTER SERVER kafka RENAME TO other")
    name = "other"
    grown("renamed")
    become(db, sink="other", published_total=300, delivery_seconds_count=300)
    db.sql("DROP SERVER other")
    make_sink(db, kafka, topic, name="other")
    grown("created again")
    assert seen["published_total"] == 300
    more()
    become(db, sink="other", published_total=400, delivery_seconds_count=400, bytes_total=3200)
    db.sql("DROP SERVER other")
    db.sql("SELECT outbox.forget('other')")
    assert db.value("SELECT count(*) FROM outbox.counters") == 0
    make_sink(db, kafka, topic, name="other", start="latest")
    assert all(value == 0 for value in totals(db, "other").values())


def test_each_kind_of_trouble_has_its_count(db, mock):
    """And last_error goes when it is over, while the count stays."""
    for name in ("t", "bad", "small"):
        mock.cmd(f"topic {name} 1")
    make_sink(db, mock, "t", delivery_timeout="3s", stall_timeout="500ms")
    write(db, 1)
    nothing_pending(db)

    mock.cmd("push_errors Produce OUT_OF_ORDER_SEQUENCE_NUMBER")
    write(db, 2)
    nothing_pending(db)

    mock.cmd("topic_error bad NOT_ENOUGH_REPLICAS")
    write(db, 1, key="stuck", topic="bad")
    write(db, 2, key="stuck", topic="bad")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 3, 30, "three are parked")
    mock.cmd("topic_error bad 0")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 60, "they go out")

    mock.cmd("push_errors Produce " + ",".join(["MSG_SIZE_TOO_LARGE"] * 2))
    write(db, 1, key="guilty")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked WHERE reason = 'dead'") == 1, 30, "one is dead")
    write(db, 1, key="guilty")
    nothing_pending(db)

    mock.cmd("down -1")
    write(db, 4)
    eventually(lambda: db.value("SELECT state FROM outbox.lag") == "backing_off", 20, "the outage")
    become(db, errors_outage_total=1)  # it is counted while the sink is down
    mock.cmd("up -1")
    nothing_pending(db)
    # Of the three that were stuck, those were not sent that came when the topic was known to take nothing.
    found = become(db, published_total=10, unparked_total=3, bytes_total=80, delivery_seconds_count=10, errors_outage_total=1, errors_poison_total=1,
                   parked_dead_total=1, errors_internal_total=0, errors_order_total=0, errors_producer_total=1)
    assert found["parked_retry_total"] >= 1 and found["errors_stuck_total"] >= found["parked_retry_total"]
    assert found["parked_retry_total"] + found["parked_behind_total"] == 4
    assert (found["pending"], found["parked"], found["dead"]) == (0, 1, 1)


def test_events_that_came_late_are_counted(db, kafka, topic):
    make_sink(db, kafka, topic)
    with db.connect(autocommit=False) as late:
        late.execute("SELECT outbox.add_event('late', 'written', '1') FROM generate_series(1, 3)")
        write(db, 10)
        eventually(lambda: db.value("SELECT count(*) FROM outbox.pending") == 0, 20, "the others are sent")
    nothing_pending(db)
    become(db, published_total=13, late_total=3)


def test_somebody_who_sits_on_the_counters_keeps_nothing_from_being_sent(db, kafka, topic):
    make_sink(db, kafka, topic)
    for lock in ("LOCK TABLE outbox.counters IN ACCESS EXCLUSIVE MODE", "SELECT FROM outbox.counters FOR UPDATE"):
        with db.connect(autocommit=False) as c:
            before = db.value("SELECT sum(published) FROM outbox.relays")
            c.execute(lock)
            for _ in range(8):  # longer than the counts wait
                write(db, 1)
                eventually(lambda before=before: c.execute("SELECT sum(published) FROM outbox.relays").fetchone()[0] > before, 20, "it is sent")
                before += 1
                time.sleep(0.5)
            old = relays(db)
            db.sql("SELECT pg_terminate_backend(%s)", old)
            eventually(lambda old=old: relays(db) not in ([], old), 20, "it ends all the same, and another one comes")
    write(db, 1)
    nothing_pending(db)
    assert metrics(db)["published_total"] == 17


def test_what_was_delivered_beyond_a_gap_is_counted_as_published(db, mock):
    """One partition takes its part of a batch, the other does not, and then the sink is down."""
    mock.cmd("topic t 2")
    mock.cmd("topic u 1")
    make_sink(db, mock, "t", delivery_timeout="1500ms", stall_timeout="10s", linger_ms=20)
    write(db, 20)
    nothing_pending(db)
    mock.cmd("leader t 0 -1")  # nobody takes it, and nothing of it is acknowledged
    write(db, 200)
    eventually(lambda: db.value("SELECT state FROM outbox.lag") == "backing_off", 30, "an outage in the middle of a batch")
    mock.cmd("leader t 0 1")
    nothing_pending(db)
    assert len(mock.consume("t", until=220)) == 220
    become(db, published_total=220, delivery_seconds_count=220)


def test_the_bounds_of_the_view_are_those_that_relays_count_by(db, kafka, topic):
    make_sink(db, kafka, topic)
    source = (env.REPO / "src/core/counts.hpp").read_text()

    def bounds(name):
        return [int(n.replace("'", "")) for n in re.findall(r"[\d']+", re.search(rf"{name}\[\] = \{{(.*?)\}}", source, re.S)[1])]
    found = metrics(db)
    assert [round(1e6 * b) for b in found["delivery_seconds"]] == bounds("kDeliveryBounds")
    assert found["batch_events"] == bounds("kBatchBounds")
