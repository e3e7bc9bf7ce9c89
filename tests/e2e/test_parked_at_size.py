"""Parked events in their thousands: what an operator does with them, and what they cost the live path."""
import statistics
import time

import pytest
from harness.factor import patience, scaled
from harness.wait import eventually
from harness.workload import Threads, make_sink, nothing_pending
from psycopg.errors import NoDataFound

# As a relay would have parked them: `dead` firsts of keys, and what waits behind each.
PARK = """
    INSERT INTO outbox.parked_events (sink_id, id, event_id, aggregate_id, event_type, payload, created_at, destination, reason, attempts, last_error)
    SELECT s.sink_id, outbox.next_id(), gen_random_uuid(), 'parked-' || g %% {keys}, 'x', to_json(repeat('x', 200) || g), clock_timestamp(), '{topic}',
           CASE WHEN g <= {keys} THEN 'dead' ELSE 'behind' END, CASE WHEN g <= {keys} THEN 1 ELSE 0 END, 'a test'
    FROM outbox.sinks s, generate_series(1, {rows}) g ORDER BY g
"""


def park(db, topic, rows, keys):
    """While the sink is paused: a relay looks at what is parked when it is resumed."""
    db.sql("SELECT outbox.pause('kafka')")
    eventually(lambda: db.value("SELECT state FROM outbox.lag") == "paused", 20, "paused")
    db.sql(PARK.format(rows=rows, keys=keys, topic=topic).replace("%%", "%"))
    db.sql("SELECT outbox.resume('kafka')")


def test_two_sessions_redrive_and_discard_a_thousand_events_while_the_relay_runs(db, kafka, topic):
    """One of them in a transaction that stays open for a while. Each event is sent or discarded, none both, and live events flow."""
    make_sink(db, kafka, topic)
    db.sql("SELECT outbox.add_event('live', 'x', '0')")
    nothing_pending(db)
    rows = scaled(1000)
    park(db, topic, rows, rows // 2)
    ids = [e for e, in db.sql("SELECT event_id::text FROM outbox.parked WHERE reason = 'dead' ORDER BY id")]
    threads = Threads()
    waits = []

    def live():
        for number in range(1, 20):
            begin = time.monotonic()
            db.sql("SELECT outbox.add_event('live', 'x', %s::text)", [str(number)])
            eventually(lambda: db.value("SELECT count(*) FROM outbox.pending") == 0, 20, interval=0.02)
            waits.append(time.monotonic() - begin)

    def discard(which):
        with db.connect() as c:
            for event in which:
                c.execute("SELECT outbox.discard('kafka', %s, 'a test')", [event])

    def redrive(which):
        with db.connect() as c:
            for event in which:
                try:
                    c.execute("SELECT outbox.redrive('kafka', %s)", [event])
                except NoDataFound:  # the other one was quicker, and it is sent
                    pass

    with db.connect(autocommit=False) as sitting:
        # It holds a tenth of the rows; nobody but who wants the same rows waits for it.
        for event in ids[:len(ids) // 10]:
            sitting.execute("SELECT outbox.redrive('kafka', %s)", [event])
        rest = ids[len(ids) // 10:]
        threads.start(live)
        threads.start(discard, rest[0::4])
        threads.start(discard, rest[1::4])
        for _ in range(2):  # the same ones from two sessions
            threads.start(redrive, rest[2::4])
        threads.join()
        assert db.value("SELECT count(*) FROM outbox.parked WHERE event_id = ANY (%s::uuid[])", [ids[:len(ids) // 10]]) == len(ids) // 10
        sitting.commit()
    assert db.value("SELECT outbox.redrive('kafka')") >= 0
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, patience(60), "nothing is parked any more")
    discarded = {e for e, in db.sql("SELECT event_id::text FROM outbox.discarded")}
    sent = [r.header("event_id") for r in kafka.consume(topic) if r.key != b"live"]
    assert len(sent) == len(set(sent)) == rows - len(discarded) and not discarded & set(sent)
    assert discarded == set(rest[0::4]) | set(rest[1::4])
    waits.sort()
    print(f"live events: median {statistics.median(waits):.3f} s, slowest {waits[-1]:.3f} s")
    assert waits[-1] < 5


def test_what_waits_behind_one_event_in_its_thousands_goes_out_at_the_pace_of_others(db, kafka, topic):
    """A hot key. What the indexes give out is counted: it grows with the number of events, not with its square."""
    rows = scaled(20_000)
    make_sink(db, kafka, topic)
    park(db, topic, rows, 1)
    read = "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = 'parked_events'"
    before = db.value(read)
    db.sql("SELECT outbox.discard('kafka', event_id, 'a test') FROM outbox.parked WHERE reason = 'dead'")
    records = kafka.consume(topic, until=rows - 1, timeout=patience(60))
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 20, "none is left")
    db.sql("SELECT pg_terminate_backend(pid, 10000) FROM outbox.relays")  # it leaves its statistics
    passed = (db.value(read) - before) / rows
    print(f"passed by each {passed:.1f} times")
    ids = [r.header("event_id") for r in records]
    assert len(set(ids)) == rows - 1 and [int(r.value[201:-1]) for r in records] == sorted(int(r.value[201:-1]) for r in records)
    assert passed < 25, f"passed by each {passed:.1f} times"


@pytest.mark.long
def test_a_hundred_thousand_parked_events_slow_the_live_path_by_no_more_than_a_tenth(make_db, kafka):
    """Of other keys. Nine runs of each kind, in turn."""
    kinds = {}
    for kind in ("without", "with"):
        db, topic = make_db(), kafka.create_topic()
        make_sink(db, kafka, topic, events="live/*")
        db.sql("SELECT outbox.add_event('first', 'x', '0', aggregate_type => 'live')")
        nothing_pending(db)
        if kind == "with":
            park(db, topic, 100_000, 20_000)
        kinds[kind] = db
    took = {kind: [] for kind in kinds}  # microseconds an event
    batches = {kind: db.value("SELECT max(batch) FROM outbox.progress") for kind, db in kinds.items()}
    for _ in range(9):
        for kind, db in kinds.items():
            db.sql("SELECT outbox.add_event('k' || g % 1000, 'x', g::text, aggregate_type => 'live') FROM generate_series(1, 200000) g")
            nothing_pending(db, 120)
            # From the first of the run's records to the last: the live path at work, and nothing else.
            seconds, events = db.sql("""
                SELECT extract(epoch FROM max(recorded_at) - min(recorded_at))::float8, max(published) - min(published)
                FROM outbox.progress WHERE batch > %s""", [batches[kind]])[0]
            batches[kind] = db.value("SELECT max(batch) FROM outbox.progress")
            took[kind].append(1e6 * seconds / events)
    medians = {kind: statistics.median(times) for kind, times in took.items()}
    print({kind: [round(t, 2) for t in times] for kind, times in took.items()}, f"ratio {medians['with'] / medians['without']:.3f}")
    assert kinds["with"].value("SELECT count(*) FROM outbox.parked") == 100_000
    assert medians["with"] < 1.1 * medians["without"]
