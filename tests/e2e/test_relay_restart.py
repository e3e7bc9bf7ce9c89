"""A relay that ends is started again."""
from harness.wait import eventually
from harness.workload import make_sink, relays


def test_a_relay_that_has_published_is_back_at_once_however_often_it_is_terminated(db, kafka, topic):
    make_sink(db, kafka, topic)
    for number in range(5):
        pid = eventually(lambda: relays(db), 3, "a relay")[0]
        db.sql("SELECT outbox.add_event('k', 'changed', '{}')")
        kafka.consume(topic, until=number + 1)
        eventually(lambda: db.value("SELECT count(*) FROM outbox.pending") == 0, 10, "nothing pending")
        db.sql("SELECT pg_terminate_backend(%s, 5000)", [pid])
