"""What becomes of an event, row by row of the table in src/core/verdict.cpp: a broker answers with each code at once, and an outage, a
parked event or a new producer follows."""
import re

import pytest
from confluent_kafka import TopicPartition
from harness import env
from harness.factor import scaled
from harness.mock import Mock
from harness.wait import eventually, never
from harness.workload import make_sink, nothing_pending

PG_CONF = {"max_worker_processes": 80, "max_connections": 200}

TABLE = {name: verdict for verdict, name in re.findall(r'Verdict::(\w+), "(\w+)"', (env.REPO / "src/core/verdict.cpp").read_text())}
# The others are librdkafka's own: no broker answers so. Unit tests and outages of real brokers show them.
ANSWERS = {name: verdict for name, verdict in TABLE.items() if not name.startswith("_") and name != "NO_ERROR"}
# librdkafka repeats the request by itself; nobody hears of it.
REPEATED = {"UNKNOWN_PRODUCER_ID", "UNKNOWN_TOPIC_OR_PART", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "LEADER_NOT_AVAILABLE",
            "REQUEST_TIMED_OUT"}
UNLISTED = {"GROUP_AUTHORIZATION_FAILED", "INVALID_CONFIG", "INVALID_REQUEST", "INVALID_TXN_STATE", "-1"}
CODES = sorted(ANSWERS) + sorted(REPEATED - set(ANSWERS)) + sorted(UNLISTED)


CONSEQUENCE = {"is down": "outage", " parked 1 events": "retry", "makes a new producer": "fatal"}
WORDS = {"INVALID_MSG": "invalid message", "INVALID_PRODUCER_EPOCH": "old epoch", "INVALID_RECORD": "failed to validate record",
         "MSG_SIZE_TOO_LARGE": "too large", "OUT_OF_ORDER_SEQUENCE_NUMBER": "out of sequence|out of order|desynchronization",
         "PRODUCER_FENCED": "fence|newer producer", "RECORD_LIST_TOO_LARGE": "larger than configured", "TOPIC_EXCEPTION": "invalid topic",
         "ILLEGAL_SASL_STATE": "current sasl state", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "transactional id authorization",
         "UNSUPPORTED_VERSION": "version not supported|not supported", "INVALID_CONFIG": "configuration is invalid",
         "INVALID_TXN_STATE": "invalid state", "THROTTLING_QUOTA_EXCEEDED": "throttling quota", "-1": "unknown"}


@pytest.fixture
def each_on_its_own_broker():
    with Mock("--brokers", len(CODES)) as m:
        yield m.start()


def test_each_code_has_the_consequence_that_the_table_says(db, each_on_its_own_broker):
    """B86: and the reason is the code's own."""
    mock = each_on_its_own_broker
    mark = db.pg.mark()
    for number, code in enumerate(CODES, 1):
        mock.cmd(f"topic t{number} 1")
        mock.cmd(f"leader t{number} 0 {number}")
        times = 3 if TABLE.get(code) == "poison" else 1
        mock.cmd(f"push_error_rtts {number} Produce" + times * f" {code}:0")
        db.sql("SELECT outbox.add_event('k', 'x', %s::text, aggregate_type => %s, topic => %s)", [str(number), f"a{number}", f"t{number}"])
    for number, code in enumerate(CODES, 1):
        make_sink(db, mock, "none", name=f"s{number}", events=f"a{number}/*")
    nothing_pending(db)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked WHERE reason <> 'dead'") == 0, 30, "nothing waits to be sent again")
    log = db.pg.log_since(mark)
    parked = {s: (attempts, why) for s, attempts, why in db.sql("SELECT sink, attempts, last_error FROM outbox.parked")}
    consumer = mock._consumer()
    wrong = []
    for number, code in enumerate(CODES, 1):
        lines = [line for line in log.splitlines() if f'sink "s{number}" ' in line and "is up again" not in line]
        seen = [what for line in lines for text, what in CONSEQUENCE.items() if text in line]
        verdict = TABLE.get(code, "outage")
        if seen != ([] if code in REPEATED else ["retry"] if verdict == "poison" else [verdict]):
            wrong.append((code, verdict, lines))
        if lines and not re.search(WORDS.get(code, code.replace("_", " ")), lines[0], re.I):
            wrong.append((code, "does not say why", lines))
        if verdict == "poison" and parked.pop(f"s{number}", (0, ""))[0] != 1:
            wrong.append((code, "is not dead after one attempt"))
        there = consumer.get_watermark_offsets(TopicPartition(f"t{number}", 0), timeout=10)[1]
        if there != (0 if verdict == "poison" else 1):
            wrong.append((code, f"{there} on the topic"))
    consumer.close()
    assert not wrong, "\n".join(map(str, wrong))
    assert not parked
    # Who was told to read its options again in the middle of an outage makes a producer first, at most one a second.
    eventually(lambda: db.value("SELECT count(*) FROM outbox.lag WHERE last_error IS NOT NULL") == 0, 10, "nothing is wrong any more")


@pytest.mark.parametrize("code", ["CLUSTER_AUTHORIZATION_FAILED", "UNSUPPORTED_VERSION"])
def test_a_cluster_that_admits_no_producer_is_an_outage_and_not_a_loop_of_producers(db, mock, code):
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", delivery_timeout="2s")
    db.sql("SELECT outbox.add_event('k', 'x', '0')")
    nothing_pending(db)
    mark = db.pg.mark()
    for _ in range(scaled(1)):  # one is used up each quarter of a second
        mock.cmd("push_errors InitProducerId " + ",".join([code] * 100))
    mock.cmd("push_errors Produce OUT_OF_ORDER_SEQUENCE_NUMBER")  # so that a new producer is needed
    db.sql("SELECT outbox.add_event('k', 'x', '1')")
    words = WORDS.get(code, code.replace("_", " "))
    eventually(lambda: re.search(words, db.value("SELECT coalesce(last_error, '') FROM outbox.lag"), re.I), 30, "the reason")
    eventually(lambda: db.value("SELECT state FROM outbox.lag") == "backing_off", 20, "the batch under way is given up")
    never(lambda: [row for row in db.sql("SELECT parked, dead, state, last_error FROM outbox.lag") if row[:3] != (0, 0, "backing_off")], scaled(3.0),
          "anything but an outage")
    mock.cmd("clear_errors InitProducerId")
    nothing_pending(db)
    assert [r.value for r in mock.consume("t")] == [b"0", b"1"]
    lines = [line for line in db.pg.log_since(mark).splitlines() if "outbox: " in line]
    assert len(lines) <= 3, lines


@pytest.mark.parametrize("times, dead", [(2, 0), (3, 1)])
def test_a_corrupt_message_is_tried_again_before_it_is_anybodys_fault(db, mock, times, dead):
    """The network may have done it. As a whole once more, then alone."""
    mock.cmd("topic t 1")
    mock.cmd("push_errors Produce " + ",".join(["INVALID_MSG"] * times))
    db.sql("SELECT outbox.add_event('k', 'x', '1')")
    make_sink(db, mock, "t", format="payload")
    nothing_pending(db)
    assert db.value("SELECT count(*) FROM outbox.parked WHERE reason = 'dead' AND attempts = 1") == dead
    assert len(mock.consume("t")) == 1 - dead
