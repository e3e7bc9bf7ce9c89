"""A topic that takes nothing for now holds nobody else up, and goes on where it stopped."""
import pytest

from harness.wait import eventually

from test_first_event import make_sink


@pytest.mark.parametrize("alone", [True, False], ids=["alone_in_its_batch", "among_others"])
def test_a_stuck_topic_is_parked_while_another_flows(db, mock, alone):
    """B20."""
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


def test_a_batch_for_a_topic_that_is_not_there_is_parked_as_a_whole(db, kafka, topic):
    """B39."""
    make_sink(db, kafka, topic, format="payload")
    db.sql("SELECT outbox.add_event('k', 'x', '0')")
    kafka.consume(topic, until=1)
    missing = f"{topic}-missing"
    db.sql(f"""SELECT outbox.add_event('k' || g, 'x', '1', topic => CASE WHEN g % 2 = 0 THEN '{missing}' END)
               FROM generate_series(1, 1000) g""")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.pending") == 0, 10, "the log has gone on")
    assert db.sql("SELECT topic, reason, count(*) FROM outbox.parked GROUP BY 1, 2") == [(missing, "retry", 500)]
    assert "does not exist" in db.value("SELECT max(last_error) FROM outbox.parked")
    kafka.create_topic(missing)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 60, "the parked events have gone out")
    assert (len(kafka.consume(topic)), len(kafka.consume(missing))) == (501, 500)


def test_a_large_event_that_was_parked_is_sent_again(db, kafka, topic):
    """Its copy lies in a TOAST table."""
    make_sink(db, kafka, f"{topic}-{{event_type}}", format="payload")
    large = '"' + "".join(f"{number:07}" for number in range(20_000)) + '"'
    db.sql("SELECT outbox.add_event('k', 'late', %s::text)", [large])
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 1, 20, "it is parked")
    kafka.create_topic(f"{topic}-late")
    assert kafka.consume(f"{topic}-late", until=1)[0].value.decode() == large
