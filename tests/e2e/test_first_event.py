"""From add_event to a consumer."""
import json

import pytest
from harness.wait import eventually


def make_sink(db, kafka, topic, name="kafka", **options):
    options = {"bootstrap_servers": kafka.bootstrap, "topic": topic, **options}
    text = ", ".join(f"{key} '{value}'" for key, value in options.items())
    db.sql(f"CREATE SERVER {name} FOREIGN DATA WRAPPER outbox_kafka OPTIONS ({text})")


@pytest.mark.matrix
def test_a_committed_event_reaches_the_topic_and_a_rolled_back_one_does_not(db, kafka, topic):
    make_sink(db, kafka, topic)
    with db.connect() as connection:
        connection.autocommit = False
        connection.execute("SELECT outbox.add_event('order-1', 'authorized', '{\"amount\": 5}', aggregate_type => 'payment')")
        connection.commit()
        connection.execute("SELECT outbox.add_event('order-1', 'captured', '{}')")
        connection.rollback()
        connection.execute("SELECT outbox.add_event('order-1', 'refunded', '{}')")
        connection.commit()
    records = kafka.consume(topic, until=2, timeout=30)
    values = [json.loads(record.value) for record in records]
    assert [value["type"] for value in values] == ["authorized", "refunded"]
    assert values[0]["data"] == {"amount": 5} and values[0]["aggregate_type"] == "payment"
    assert [record.key for record in records] == [b"order-1", b"order-1"]
    eventually(lambda: db.value("SELECT count(*) FROM outbox.pending") == 0, 10, "nothing pending")


def test_events_written_before_the_sink_are_published_from_the_earliest(db, kafka, topic):
    for number in range(5):
        db.sql(f"SELECT outbox.add_event('k', 'created', '{number}')")
    make_sink(db, kafka, topic, format="payload")
    assert [record.value for record in kafka.consume(topic, until=5, timeout=30)] == [b"0", b"1", b"2", b"3", b"4"]
