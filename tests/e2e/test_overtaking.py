"""No overtaking: behind a request that the broker refuses, or that times out, at least four more requests of the same key are in
flight, and none of them is seen before it."""
import re

import pytest
from harness import checker
from harness.kafka import Kafka
from harness.wait import eventually
from harness.workload import meanwhile, nothing_pending

PG_FLAVOUR = "faults"
REQUEST, EVENTS, BAD = 5, 200, 53  # events in a request and in all; the one that the broker does not take
LARGE = '"' + "x" * 5000 + '"'


@pytest.fixture(scope="module")
def broker():
    """Its user `relay` may write and no more: what a topic takes, the sink learns from refusals alone."""
    with Kafka(sasl={"relay": "open-sesame"}) as kafka:
        yield kafka.start()


@pytest.fixture
def no_fault(pg):
    yield
    set_fault(pg, "")


def set_fault(pg, name):
    pg.configure(outbox__fault=name)
    pg.reload()
    eventually(lambda: pg.value("SELECT current_setting('outbox.fault')") == name, 10, "the setting")


def make_topic(broker, config=None):
    topic = broker.create_topic(config=config)
    broker.allow("relay", topic, "WRITE")
    return topic


def make_sink(db, bootstrap, topic, sasl=False, **options):
    options = {"bootstrap_servers": bootstrap, "topic": topic, "format": "payload", "batch_num_messages": REQUEST, **options}
    if sasl:
        options |= {"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN"}
    text = ", ".join(f"{key} '{value}'" for key, value in options.items())
    db.sql(f"CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS ({text})")
    if sasl:
        db.sql("CREATE USER MAPPING FOR CURRENT_USER SERVER kafka OPTIONS (sasl_username 'relay', sasl_password 'open-sesame')")


def write(db, bad_key="k", bad_payload="bad", events=EVENTS):
    """Events of one key, one of which may be different."""
    with db.connect() as c, c.transaction():
        for number in range(1, events + 1):
            bad = number == BAD
            c.execute("SELECT outbox.add_event(%s::text, 'x', convert_to(%s, 'UTF8'))",
                      [bad_key if bad else "k", bad_payload if bad else str(number)])
        # As if it had been written long ago.
        c.execute("UPDATE outbox.events SET created_at = '2001-01-01' WHERE payload_bytes = 'old'")


def flowing(db):
    """Somebody writes all the while, so that there is always something on its way."""
    def body(over):
        while not over.wait(0.05):
            write(db)
    return meanwhile(body)


def numbers(kafka, topic, **kw):
    return [r.value for r in kafka.consume(topic, **kw)]


def in_order(db, kafka, topic, repeats):
    events = checker.committed(db)
    return checker.check(events, kafka.consume(topic, until=checker.has_all(events))).must_hold(repeats=repeats)


REFUSED = {
    "too_large": ({"max.message.bytes": "2000"}, {"bad_payload": LARGE}, "too large"),
    "no_key_for_a_compacted_topic": ({"cleanup.policy": "compact"}, {"bad_key": None}, "failed to validate record"),
    "too_old": ({"message.timestamp.before.max.ms": "3600000"}, {"bad_payload": "old"}, "timestamp"),
}


@pytest.mark.parametrize("refusal, on_poison", [("too_large", "hold"), ("too_large", "skip"), ("too_old", "hold"),
                                                ("no_key_for_a_compacted_topic", "skip")])
def test_nothing_overtakes_a_refused_request(db, broker, refusal, on_poison):
    config, different, reason = REFUSED[refusal]
    topic = make_topic(broker, config)
    write(db, **different)
    make_sink(db, broker.sasl_bootstrap, topic, sasl=True, on_poison=on_poison)
    nothing_pending(db)
    dead = db.sql("SELECT id, last_error FROM outbox.parked WHERE reason = 'dead'")
    assert len(dead) == 1 and reason in dead[0][1].lower(), dead
    held = on_poison == "hold" and different.get("bad_key", "k") is not None
    behind = [(BAD + n, "behind") for n in range(1, EVENTS - BAD + 1)] if held else []
    first = db.value("SELECT min(id) FROM outbox.events") - 1
    assert [(i - first, r) for i, r in db.sql("SELECT id, reason FROM outbox.parked WHERE reason <> 'dead' ORDER BY id")] == behind
    others = [str(n).encode() for n in range(1, EVENTS + 1) if n != BAD]
    assert numbers(broker, topic) == (others[:BAD - 1] if held else others), "what came, in the order in which it came"
    if held:
        db.sql("SELECT outbox.discard('kafka', event_id, 'a test') FROM outbox.parked WHERE reason = 'dead'")
        assert numbers(broker, topic, until=EVENTS - 1) == others
    else:
        assert db.sql("SELECT id - %s FROM outbox.parked", [first]) == [(BAD,)]


def test_nothing_overtakes_what_was_denied(db, broker):
    """The right to write is taken away while events flow, and given back."""
    topic = make_topic(broker)
    make_sink(db, broker.sasl_bootstrap, topic, sasl=True)
    with flowing(db):
        broker.consume(topic, until=100)
        broker.disallow("relay", topic)
        eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") > 0, 20, "events are parked")
    assert "authorization failed" in db.value("SELECT last_error FROM outbox.parked WHERE reason = 'retry' LIMIT 1")
    write(db, events=100)
    nothing_pending(db)
    broker.allow("relay", topic, "WRITE")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 30, "nothing parked")
    in_order(db, broker, topic, repeats=0)


def test_nothing_overtakes_what_timed_out(db, kafka, topic):
    """The broker stands still for longer than the relay waits; what was on its way to it arrives afterwards. The producer without
    gapless is no control here: no message of ours times out in librdkafka (message.timeout.ms is 0), so none is given up with later
    ones of its key behind it."""
    make_sink(db, kafka.bootstrap, topic, delivery_timeout="1s", batch_size=1000)
    with flowing(db):
        kafka.consume(topic, until=100)
        kafka.freeze()
        eventually(lambda: db.value("SELECT state FROM outbox.lag") == "backing_off", 20, "an outage")
    kafka.resume()
    nothing_pending(db)
    print(in_order(db, kafka, topic, repeats=1000))
    assert db.value("SELECT count(*) FROM outbox.parked") == 0


@pytest.mark.parametrize("error", ["MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP", "TOPIC_AUTHORIZATION_FAILED"])
def test_nothing_overtakes_an_injected_refusal(db, mock, error):
    """Answered as Kafka answers: the third request is refused, and what is in flight behind it is out of sequence."""
    mock.cmd("topic m 1")
    mock.cmd(f"push_error_rtts 1 Produce 0:40 0:40 {error}:40" + 4 * " OUT_OF_ORDER_SEQUENCE_NUMBER:40")
    write(db, bad_payload="53", events=80)
    make_sink(db, mock.bootstrap, "m")
    nothing_pending(db)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 30, "nothing parked")
    print(in_order(db, mock, "m", repeats=0))


def test_without_the_gapless_producer_order_breaks(pg, make_db, broker, no_fault):
    """The control: what the tests above show is not luck."""
    set_fault(pg, "overtaking")
    for _ in range(10):
        mark, db = pg.mark(), make_db()
        topic = make_topic(broker, {"max.message.bytes": "2000"})
        write(db, bad_payload=LARGE)
        make_sink(db, broker.sasl_bootstrap, topic, sasl=True, on_poison="skip")
        nothing_pending(db)
        events = checker.committed(db)
        verdict = checker.check(events, broker.consume(topic))
        print(verdict)
        # The relay says so, in the log and in the sink's last error, if it had the report in time.
        said = re.findall(r'WARNING:  outbox: sink "kafka" lane 0: the event with id (\d+) and the key "k" has overtaken', pg.log_since(mark))
        if verdict.disordered and said:
            break
    assert verdict.disordered, "nothing was overtaken"
    assert int(said[-1]) > db.value("SELECT id FROM outbox.parked WHERE reason = 'dead'")
    assert "has overtaken an earlier one" in db.value("SELECT last_error FROM outbox.lag")
