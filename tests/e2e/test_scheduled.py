"""Scheduled events: they wait in outbox.scheduled and are ordinary events from the moment they are due."""
import os
import random
import time
from pathlib import Path

from harness.factor import patience, scaled
from harness.wait import eventually, never
from harness.workload import Threads, nothing_pending, relays

from test_first_event import make_sink


def test_due_events_are_published_in_order_of_deliver_at_and_a_cancelled_one_never(db, kafka, topic):
    make_sink(db, kafka, topic, format="payload")
    schedule = "SELECT outbox.add_event('k', 'reminder', %s, deliver_at => clock_timestamp() + %s * interval '1 second')"
    db.sql(schedule, ["2", 2.0])
    db.sql(schedule, ["1", 1.0])
    cancelled = db.value(schedule, ["3", 1.5])
    later = db.value(schedule, ["4", 3600])
    assert db.value("SELECT outbox.cancel(%s)", [cancelled]) is True
    assert db.value("SELECT outbox.cancel(%s)", [cancelled]) is False
    assert [record.value for record in kafka.consume(topic, until=2, timeout=20)] == [b"1", b"2"]
    assert db.value("SELECT count(*) FROM outbox.scheduled") == 1
    never(lambda: sum(kafka.end_offsets(topic).values()) != 2, 1, "a third event")
    assert db.value("SELECT outbox.cancel(%s)", [later]) is True


def test_an_overdue_event_is_published_when_a_sink_comes(db, kafka, topic):
    db.sql("SELECT outbox.add_event('k', 'reminder', '1', deliver_at => clock_timestamp() - interval '1 day')")
    make_sink(db, kafka, topic, format="payload")
    assert [record.value for record in kafka.consume(topic, until=1, timeout=20)] == [b"1"]
    eventually(lambda: db.value("SELECT count(*) FROM outbox.scheduled") == 0, 5)


def test_an_event_larger_than_the_server_s_limit_holds_no_other_up(db, kafka, topic):
    """Its writer had a limit of its own (a superuser may give one to a role or a session)."""
    make_sink(db, kafka, topic, format="payload")
    with db.connect() as writer:
        writer.execute("SET outbox.max_event_size = '2MB'")
        writer.execute("SELECT outbox.add_event('k', 'large', to_json(repeat('x', 950000)), deliver_at => clock_timestamp())")
    db.sql("SELECT outbox.add_event('k', 'small', '2', deliver_at => clock_timestamp() + interval '10 milliseconds')")
    assert [len(record.value) for record in kafka.consume(topic, until=2, timeout=20)] == [950_002, 1]


def test_many_that_are_due_at_once_move_in_order_of_deliver_at(db, kafka, topic, seed):
    """More than one round moves, written in any order by add_event and by INSERT; those of one time in the order of their ids."""
    rows = scaled(2500)
    db.sql("SELECT setseed(%s)", [seed / 2**32])
    # A quarter of them share their time with others.
    db.sql("SELECT outbox.add_event('k', 'reminder', g::text, deliver_at => now() - floor(random() * 300) * interval '1 second')"
           " FROM generate_series(1, %s) g", [rows // 2])
    db.sql("INSERT INTO outbox.scheduled (aggregate_id, event_type, payload, deliver_at)"
           " SELECT 'k', 'reminder', to_json(g), now() - random() * interval '5 minutes' FROM generate_series(%s::int, %s::int) g", [rows // 2 + 1, rows])
    expected = [e for e, in db.sql("SELECT event_id::text FROM outbox.scheduled ORDER BY deliver_at, id")]
    make_sink(db, kafka, topic, format="payload")
    assert [r.header("event_id") for r in kafka.consume(topic, until=rows)] == expected
    assert db.value("SELECT count(*) FROM outbox.scheduled") == 0


def test_of_a_cancel_and_the_move_one_wins_whoever_comes_first(db, kafka, topic, seed):
    """Events come due while three sessions cancel them, some in transactions that stay open or are rolled back: what outbox.cancel says is
    what becomes of each."""
    make_sink(db, kafka, topic, format="payload")
    rows, said, threads = scaled(600), {}, Threads()
    db.sql("SELECT outbox.add_event('k' || g %% 7, 'reminder', g::text, deliver_at => clock_timestamp() + random() * interval '3 seconds')"
           " FROM generate_series(1, %s) g", [rows])
    ids = [e for e, in db.sql("SELECT event_id::text FROM outbox.scheduled ORDER BY deliver_at")]

    def cancel(number):
        rng = random.Random(seed + number)
        mine = ids[number::3]
        with db.connect(autocommit=False) as c:
            for k in range(0, len(mine), 5):  # in order of their times, so that many are just due
                answers = {e: c.execute("SELECT outbox.cancel(%s)", [e]).fetchone()[0] for e in mine[k:k + 5]}
                if rng.random() < 0.3:
                    c.rollback()
                    continue
                c.commit()
                said.update(answers)
    for number in range(3):
        threads.start(cancel, number)
    threads.join()
    eventually(lambda: db.value("SELECT count(*) FROM outbox.scheduled") == 0, patience(30), "all have moved or are cancelled")
    nothing_pending(db)
    cancelled = {e for e, yes in said.items() if yes}
    published = [r.header("event_id") for r in kafka.consume(topic, until=rows - len(cancelled))]
    assert len(published) == len(set(published)) and set(published) == set(ids) - cancelled
    assert cancelled == {e for e, in db.sql("SELECT event_id::text FROM outbox.discarded WHERE action = 'cancelled'")}
    print(f"{len(cancelled)} cancelled in time, {len(said) - len(cancelled)} too late, {rows - len(said)} not at all")


def test_a_transaction_that_sits_on_a_scheduled_event_holds_up_no_other(db, kafka, topic):
    make_sink(db, kafka, topic, format="payload")
    schedule = "SELECT outbox.add_event('k', 'reminder', %s::text, deliver_at => clock_timestamp() + interval '300 milliseconds')"
    first = db.value(schedule, [1])
    with db.connect(autocommit=False) as sitting:
        assert sitting.execute("SELECT outbox.cancel(%s)", [first]).fetchone()[0] is True
        db.sql(schedule, [2])
        assert [r.value for r in kafka.consume(topic, until=1, timeout=20)] == [b"2"]
        sitting.rollback()
    assert [r.value for r in kafka.consume(topic, until=2, timeout=20)] == [b"2", b"1"]


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_what_has_moved_costs_nothing_while_somebody_holds_an_old_snapshot(db, mock):
    """Moved and cancelled events stay in the table and its index then, as many as there were since the snapshot was taken. A look that began
    with them each time would be all that the relay does."""
    mock.cmd("topic t 1")
    make_sink(db, mock, "t")
    db.sql("INSERT INTO outbox.scheduled (aggregate_id, event_type, payload, deliver_at)"
           " SELECT 'k', 'gone', '1', now() + interval '1 day' FROM generate_series(1, %s) g", [scaled(200_000)])
    with db.connect(autocommit=False) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM outbox.scheduled")
        db.sql("UPDATE outbox.scheduled SET deliver_at = now() - interval '1 day'")
        db.sql("DELETE FROM outbox.scheduled")
        eventually(lambda: relays(db), 20, "the relay runs")
        relay, = relays(db)
        db.sql("SELECT outbox.add_event('k', 'due', '1', deliver_at => clock_timestamp() + g * interval '50 milliseconds')"
               " FROM generate_series(1, 100) g")
        begin, before = time.monotonic(), cpu_seconds(relay)
        records = mock.consume("t", until=100, timeout=60)
        share = (cpu_seconds(relay) - before) / (time.monotonic() - begin)
    assert len(records) == 100
    assert share < 0.2, f"the relay was busy for {share:.0%} of the time"
