"""A topic that takes nothing for now holds nobody else up, and goes on where it stopped."""
import json

from harness.wait import eventually

from test_first_event import make_sink


def test_a_stuck_topic_is_parked_after_stall_timeout_while_another_flows(db, mock):
    mock.cmd("topic stuck 1")
    mock.cmd("topic healthy 1")
    mock.cmd("topic_error stuck NOT_ENOUGH_REPLICAS")
    make_sink(db, mock, "healthy", stall_timeout="1s", format="payload")
    for number in range(20):
        db.sql("SELECT outbox.add_event('stuck-key', 'x', %s, topic => 'stuck')", [str(number)])
        db.sql("SELECT outbox.add_event('other-key', 'x', %s)", [str(number)])
    db.sql("SELECT outbox.add_event('last', 'x', '1')")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.pending") == 0, 30, "the log has gone on")
    parked = db.sql("SELECT DISTINCT topic, reason FROM outbox.parked")
    assert {topic for topic, _ in parked} == {"stuck"}, parked
    assert "not acknowledged" in db.value("SELECT last_error FROM outbox.parked WHERE last_error IS NOT NULL LIMIT 1")
    mock.cmd("topic_error stuck 0")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 60, "the stuck events have gone out")
