"""Many events in one batch that the broker does not take: they are found quickly, and hold nobody up."""
import pytest
from harness import checker
from harness.factor import patience
from harness.kafka import Kafka
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending

KEYS, BAD, PER_KEY = 200, 200, 5
LARGE = '"' + "x" * 5000 + '"'


@pytest.fixture(scope="module")
def broker():
    """Its user `relay` may write and no more: what a topic takes, the sink learns from refusals alone."""
    with Kafka(sasl={"relay": "open-sesame"}) as kafka:
        yield kafka.start()


@pytest.mark.parametrize("on_poison, bad_keys, request_size", [("hold", KEYS, 5), ("skip", KEYS, 1000), ("skip", 20, 50)])
def test_many_refused_events_of_a_batch_hold_nobody_up(db, broker, on_poison, bad_keys, request_size):
    """A thousand events, a fifth of them too large: by turns with the others, in requests of their own or together."""
    topic = broker.create_topic(partitions=4, config={"max.message.bytes": "2000"})
    broker.allow("relay", topic, "WRITE")
    with db.connect() as c, c.transaction():
        for n in range(KEYS * PER_KEY):
            turn, key = divmod(n, bad_keys)
            bad = turn % PER_KEY == 2
            c.execute("SELECT outbox.add_event(%s::text, 'x', convert_to(%s, 'UTF8'))", [f"k{key}", LARGE if bad else str(n)])
    db.sql("CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '%s', topic '%s', format 'payload', on_poison '%s',"
           " batch_num_messages '%d', security_protocol 'sasl_plaintext', sasl_mechanism 'PLAIN')"
           % (broker.sasl_bootstrap, topic, on_poison, request_size))
    db.sql("CREATE USER MAPPING FOR CURRENT_USER SERVER kafka OPTIONS (sasl_username 'relay', sasl_password 'open-sesame')")
    oldest = []

    def judged():
        oldest.append(db.value("SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float FROM pg_stat_activity"
                               " WHERE backend_type = 'outbox relay'"))
        return db.value("SELECT count(*) FROM outbox.pending") == 0

    eventually(judged, patience(60), "nothing pending")
    print(f"the oldest transaction of the relay: {max(oldest):.2f} s")
    assert max(oldest) < 20
    dead = {e for e, in db.sql("SELECT event_id::text FROM outbox.parked WHERE reason = 'dead'")}
    behind = {e for e, in db.sql("SELECT event_id::text FROM outbox.parked WHERE reason = 'behind'")}
    events = checker.committed(db)
    bad = [e for e in events if len(e.payload) > 2000]
    assert dead == {e.event_id for e in bad} and len(bad) == BAD
    later = {e.event_id for e in events for b in bad if on_poison == "hold" and e.key == b.key and e.order > b.order}
    assert behind == later
    due = [e for e in events if e.event_id not in dead | behind]
    print(checker.check(due, broker.consume(topic, until=checker.has_all(due))).must_hold())  # what another partition was sent comes twice: a forced change of producer


def test_who_is_guilty_is_found_out_in_several_transactions_where_it_takes_long(db, mock):
    """One key, a slow link, and a request that is refused: each event alone takes 300 times 40 ms."""
    mock.cmd("topic t 1")
    mock.cmd("rtt 1 40")
    mock.cmd("push_errors Produce MSG_SIZE_TOO_LARGE")
    db.sql("SELECT outbox.add_event('k', 'x', n::text::json) FROM generate_series(1, 300) n")
    make_sink(db, mock, "t")
    nothing_pending(db)
    batches = db.sql("SELECT events FROM outbox.progress WHERE events > 0 ORDER BY batch")
    print(batches)
    assert len(batches) > 1 and sum(n for n, in batches) == 300
    assert [r.value for r in mock.consume("t", until=300)] == [str(n).encode() for n in range(1, 301)]
    assert db.value("SELECT count(*) FROM outbox.parked") == 0
