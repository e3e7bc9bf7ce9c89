"""A topic that takes nothing for now holds nobody else up, and goes on where it stopped."""
import pytest

from harness.wait import eventually

from test_first_event import make_sink


@pytest.mark.parametrize("alone", [True, False], ids=["alone_in_its_batch", "among_others"])
def test_a_stuck_topic_is_parked_while_another_flows(db, mock, alone):
    mock.cmd("topic stuck 1")
    mock.cmd("topic healthy 1")
    mock.cmd("topic_error stuck NOT_ENOUGH_REPLICAS")
    with db.connect() as connection:
        connection.autocommit = alone
        for number in range(20):
            connection.execute("SELECT outbox.add_event('stuck-key', 'x', %s, topic => 'stuck')", [str(number)])
            connection.execute("SELECT outbox.add_event('other-key', 'x', %s)", [str(number)])
            if alone and number == 0:  # the relay meets the stuck topic with nothing beside it
                make_sink(db, mock, "healthy", stall_timeout="1s", batch_size="1", format="payload")
        connection.commit()
    if not alone:
        make_sink(db, mock, "healthy", stall_timeout="1s", format="payload")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.pending") == 0, 25, "the log has gone on")
    parked = db.sql("SELECT DISTINCT topic FROM outbox.parked")
    assert parked == [("stuck",)], parked
    assert "not acknowledged" in db.value("SELECT last_error FROM outbox.parked WHERE last_error IS NOT NULL LIMIT 1")
    mock.cmd("topic_error stuck 0")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 60, "the stuck events have gone out")
