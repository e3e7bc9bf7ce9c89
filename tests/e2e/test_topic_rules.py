"""What a topic's own settings forbid is parked with the reason, without being sent: sizes (field reports B35, B37), keys; and topics
that are not there (B39)."""
import random
import time

import pytest
from harness import checker
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending

SMALL = 50


def text(size):
    """JSON that does not compress below half."""
    return '"' + "".join(random.Random(1).choices("0123456789abcdef", k=size)) + '"'


def write(db, *payloads, key="k", topic=None):
    with db.connect() as c, c.transaction():
        for payload in payloads:
            c.execute("SELECT outbox.add_event(%s::text, 'x', %s::text, topic => %s)", [key, payload, topic])


def dead(db):
    return db.sql("SELECT aggregate_id, attempts, last_error FROM outbox.parked WHERE reason = 'dead'")


@pytest.mark.parametrize("known", [True, False], ids=["known", "not_known_yet"])
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_an_event_too_large_for_its_topic_takes_no_neighbour_along(db, kafka, compression, known):
    topic = kafka.create_topic(config={"max.message.bytes": "2000"})
    if known:
        make_sink(db, kafka, topic, on_poison="skip", compression_codec=compression)
        write(db, '"first"')
        nothing_pending(db)
    write(db, *["1"] * SMALL, text(5000), *["2"] * SMALL)
    if not known:
        make_sink(db, kafka, topic, on_poison="skip", compression_codec=compression)
    nothing_pending(db)
    [(key, attempts, why)] = dead(db)
    assert attempts == 1 and "max.message.bytes" in why and "2000" in why and "5132" in why, why
    if compression == "none" and known:
        assert "Broker" not in why, "it was not sent"
    values = [r.value for r in kafka.consume(topic)]
    assert values == known * [b'"first"'] + SMALL * [b"1"] + SMALL * [b"2"]


def test_the_largest_event_that_a_topic_takes_is_sent_and_one_byte_more_is_not(db, kafka):
    """The size is what the broker reckons."""
    topic = kafka.create_topic(config={"max.message.bytes": "2000"})
    make_sink(db, kafka, topic)
    write(db, '"first"')
    nothing_pending(db)
    fits = 5000 - (5132 - 2000)  # as the test above has it
    write(db, text(fits), key="f")
    write(db, text(fits + 1), key="l")
    nothing_pending(db)
    assert [(key, "(2000)" in why and "2001 bytes" in why) for key, _, why in dead(db)] == [("l", True)]
    assert len(kafka.consume(topic)) == 2
    # The topic is changed, and the event sent again by hand; the next of its kind goes by itself.
    kafka.alter_topic(topic, {"max.message.bytes": "3000"})
    changed = time.monotonic()
    assert db.value("SELECT outbox.redrive('kafka')") == 1
    kafka.consume(topic, until=3)
    eventually(lambda: time.monotonic() - changed > 0.6, 5, "what was learned half a second ago counts")
    write(db, text(fits + 2), key="a")
    assert {r.key for r in kafka.consume(topic, until=4)} == {b"k", b"f", b"l", b"a"}
    assert dead(db) == []


def test_an_event_without_a_key_for_a_compacted_topic_is_not_sent(db, kafka):
    topic = kafka.create_topic(config={"cleanup.policy": "compact"})
    make_sink(db, kafka, topic)
    write(db, '"first"')
    nothing_pending(db)
    write(db, "1")
    write(db, "2", key=None)
    write(db, "3")
    nothing_pending(db)
    assert dead(db) == [(None, 1, f"{topic}: the topic is compacted (cleanup.policy), and the event has no key")]
    assert [r.value for r in kafka.consume(topic)] == [b'"first"', b"1", b"3"]


def test_an_event_too_large_for_the_client_is_parked_at_once_with_its_size(make_db, pg, kafka, topic):
    """B37. The sink's own limit; nobody blames the broker. Its key's later events wait, all others flow."""
    db = make_db()
    make_sink(db, kafka, topic)
    large = b"x" * 2_000_000
    with db.connect() as c:
        c.execute("SET outbox.max_event_size = '4MB'")
        c.execute("SELECT outbox.add_event('k', 'x', %b)", [large])
    for number in range(10):
        write(db, str(number))
        write(db, str(number), key="other")
    nothing_pending(db)
    [(key, attempts, why)] = dead(db)
    assert (key, attempts) == ("k", 1) and "message.max.bytes (1000000)" in why and "2000" in why and "Broker" not in why, why
    assert db.sql("SELECT aggregate_id, count(*) FROM outbox.parked WHERE reason = 'behind' GROUP BY 1") == [("k", 10)]
    assert [(r.key, r.value) for r in kafka.consume(topic)] == [(b"other", str(n).encode()) for n in range(10)]
    db.sql("SELECT outbox.discard('kafka', event_id, 'too large') FROM outbox.parked WHERE reason = 'dead'")
    records = kafka.consume(topic, until=20)
    assert [r.value for r in records if r.key == b"k"] == [str(n).encode() for n in range(10)]


def test_a_misspelt_topic_is_named_with_the_cause_and_not_created(db, kafka, topic):
    """B39."""
    make_sink(db, kafka, topic)
    misspelt = f"{topic}-misspelt"
    write(db, "1", topic=misspelt, key="a")
    write(db, "2", key="b")
    kafka.consume(topic, until=1)
    eventually(lambda: db.sql("SELECT topic, reason FROM outbox.parked") == [(misspelt, "retry")], 20, "it is parked")
    why = db.value("SELECT last_error FROM outbox.parked")
    assert misspelt in why and "does not exist" in why
    assert misspelt not in kafka.topics()
    for name in ["", "a b", "x/y", "..", "x" * 300]:
        with pytest.raises(Exception, match="topic"):
            write(db, "1", topic=name)
    kafka.create_topic(misspelt)
    assert [r.value for r in kafka.consume(misspelt, until=1)] == [b"1"]
    checker.check(checker.committed(db), kafka.consume(topic) + kafka.consume(misspelt)).must_hold(repeats=0)
