"""Scheduled events: they wait in outbox.scheduled and are ordinary events from the moment they are due."""
from harness.wait import eventually, never

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
