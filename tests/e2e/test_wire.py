"""What a consumer gets: values, keys, headers, times and partitions, byte for byte."""
import base64
import json
import time
import uuid

import pytest
from conftest import Database
from harness.workload import make_sink, nothing_pending

ID = "018f4e3a-7b1c-7def-8123-456789abcdef"
# Spaces and the order of the members must survive.
PAYLOAD = '{"b": 1,  "a":[1.0, "ü\\u20ac\\"\\\\"]}'


def one(kafka, topic):
    record, = kafka.consume(topic, until=1)
    return record


def event(db, headers='{"trace": "abc", "empty": "", "none": null}', **kw):
    """One event; returns created_at as it is on the wire."""
    values = {"event_id": ID, "aggregate_type": "order", "aggregate_id": "ключ-1", "event_type": "placed", "payload": PAYLOAD,
              "headers": headers} | kw
    columns = ", ".join(values)
    return db.sql(f"""INSERT INTO outbox.events ({columns}) VALUES ({", ".join(["%s"] * len(values))})
                      RETURNING to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')""", list(values.values()))[0][0]


OWN = {"trace": b"abc", "empty": b"", "none": None}
PLAIN = {"event_id": ID.encode(), "event_type": b"placed", "aggregate_type": b"order"}


def cloud(at):
    return {"ce_specversion": b"1.0", "ce_id": ID.encode(), "ce_source": b"/shop", "ce_type": b"placed",
            "ce_subject": "ключ-1".encode(), "ce_time": at.encode(), "content-type": b"application/json"}


FORMATS = {
    "envelope": (lambda at: ('{"event_id":"%s","type":"placed","aggregate_type":"order","aggregate_id":"ключ-1","occurred_at":"%s","data":%s}'
                             % (ID, at, PAYLOAD)), lambda at: PLAIN),
    "payload": (lambda at: PAYLOAD, lambda at: PLAIN),
    "debezium": (lambda at: PAYLOAD, lambda at: {"id": ID.encode()}),
    "cloudevents": (lambda at: PAYLOAD, cloud),
    "cloudevents_structured": (lambda at: ('{"specversion":"1.0","id":"%s","source":"/shop","type":"placed","subject":"ключ-1",'
                                           '"time":"%s","datacontenttype":"application/json","data":%s}' % (ID, at, PAYLOAD)),
                               lambda at: {"content-type": b"application/cloudevents+json"}),
}


@pytest.mark.parametrize("format", FORMATS)
def test_each_format_is_what_it_says_to_the_byte(db, kafka, topic, format):
    value, headers = FORMATS[format]
    make_sink(db, kafka, topic, format=format, source="/shop")
    at = event(db)
    record = one(kafka, topic)
    assert record.value.decode() == value(at)
    assert record.key == "ключ-1".encode()
    names = [name for name, _ in record.headers]
    assert len(names) == len(set(names)) and dict(record.headers) == headers(at) | OWN
    if format != "debezium" and not format.startswith("cloud"):
        assert names[:3] == ["event_id", "event_type", "aggregate_type"]


def test_null_empty_json_null_and_an_empty_object_are_four_different_records(db, kafka, topic):
    """B07."""
    make_sink(db, kafka, topic)
    db.sql("""SELECT outbox.add_event('k', 'x', NULL::text); SELECT outbox.add_event('k', 'x', ''::bytea);
              SELECT outbox.add_event('k', 'x', 'null'::jsonb); SELECT outbox.add_event('k', 'x', '{}')""")
    assert [r.value for r in kafka.consume(topic, until=4)] == [None, b"", b"null", b"{}"]


@pytest.mark.parametrize("format", FORMATS)
def test_no_payload_is_a_null_value_in_every_format(db, kafka, topic, format):
    make_sink(db, kafka, topic, format=format)
    event(db, payload=None)
    record = one(kafka, topic)
    assert record.value is None and record.key == "ключ-1".encode()


def test_bytes_arrive_as_they_were_stored(db, kafka, topic):
    """B10."""
    make_sink(db, kafka, topic)
    raw = bytes(range(256)) * 3
    texts = ['{"a":"he said \\"hi\\" \\\\ /"}', '[[],[{"b":[]}]]', '"just a string"', "123", "[" * 200 + "]" * 200, ' {"x" : 1e400 }\n']
    with db.connect() as c:
        c.execute("SELECT outbox.add_event('k', 'x', %s::bytea)", [raw])
        for text in texts:
            c.execute("SELECT outbox.add_event('k', 'x', %s)", [text])
            c.execute("SELECT outbox.add_event('k', 'x', %s::json)", [text])
        canonical = c.execute("""SELECT '{"b": 1, "a": 2.50, "b": 3}'::jsonb::text""").fetchone()[0]
        c.execute("""SELECT outbox.add_event('k', 'x', '{"b": 1, "a": 2.50, "b": 3}'::jsonb)""")
    got = [r.value for r in kafka.consume(topic, until=2 + 2 * len(texts))]
    assert got == [raw, *(t.encode() for text in texts for t in (text, text)), canonical.encode()]


def test_bytes_are_base64_inside_the_formats_that_are_json(db, kafka):
    for format, member in (("envelope", "data_base64"), ("cloudevents_structured", "data_base64")):
        topic = kafka.create_topic()
        make_sink(db, kafka, topic, f"s_{format}", format=format, events=f"{format}/*")
        event(db, aggregate_type=format, payload=None, payload_bytes=b"\x00\xff\x10")
        assert base64.b64decode(one(kafka, topic).json()[member]) == b"\x00\xff\x10"


def test_the_record_s_time_is_when_it_was_created_or_when_it_was_sent(db, kafka):
    topics = {kind: kafka.create_topic() for kind in ("created", "sent")}
    make_sink(db, kafka, topics["created"], "created")
    make_sink(db, kafka, topics["sent"], "sent", timestamp="sent")
    db.sql("SELECT outbox.pause('created'); SELECT outbox.pause('sent')")
    event(db)
    created = db.value("SELECT floor(extract(epoch FROM created_at) * 1000)::bigint FROM outbox.events")
    time.sleep(0.3)
    db.sql("SELECT outbox.resume('created'); SELECT outbox.resume('sent')")
    assert one(kafka, topics["created"]).timestamp == created
    sent = one(kafka, topics["sent"]).timestamp
    assert created + 300 <= sent <= time.time() * 1000 + 1


def test_event_ids_are_given_or_rise_with_time(db, kafka, topic):
    make_sink(db, kafka, topic)
    given = db.value("SELECT outbox.add_event('k', 'x', '1', event_id => %s)", [ID])
    made = [db.value("SELECT outbox.add_event('k', 'x', '2')") for _ in range(3)]
    assert [r.header("event_id") for r in kafka.consume(topic, until=4)] == [ID, *map(str, made)]
    assert str(given) == ID and made == sorted(made) and all(uuid.UUID(str(m)).version == 7 for m in made)


def test_keys_go_to_the_partitions_where_java_clients_put_them(db, kafka):
    """B08."""
    topic = kafka.create_topic(partitions=10)
    make_sink(db, kafka, topic)
    expected = {"order-1": 6, "order-2": 3, "order-3": 9, "cust:42": 4, "a": 4, "ключ": 4, "": 1}
    for key in expected:
        db.sql("SELECT outbox.add_event(%s, 'x', '1')", [key])
    db.sql("SELECT outbox.add_event(42, 'x', '1')")
    db.sql("SELECT outbox.add_event('00000000-0000-4000-8000-00000000002a'::uuid, 'x', '1')")
    with db.connect() as c:
        for _ in range(20):
            c.execute("SELECT outbox.add_event(NULL::text, 'x', '1') FROM generate_series(1, 10)")
            time.sleep(0.02)  # librdkafka keeps to a partition for sticky.partitioning.linger.ms
    records = kafka.consume(topic, until=len(expected) + 202)
    keyed = {r.key.decode(): r.partition for r in records if r.key is not None}
    assert {key: keyed[key] for key in expected} == expected
    assert "42" in keyed and "00000000-0000-4000-8000-00000000002a" in keyed
    spread = {r.partition for r in records if r.key is None}
    assert len(spread) >= 3, f"200 events without a key are in {spread} alone"


def test_topics_come_from_the_event_or_from_the_template(db, kafka):
    names = {kind: f"t-{uuid.uuid4().hex[:8]}-{kind}" for kind in ("order", "placed", "own")}
    prefix = names["order"].removesuffix("order")
    names = {"order.placed": f"{prefix}order.placed", "own": f"{prefix}own"}
    for name in names.values():
        kafka.create_topic(name)
    make_sink(db, kafka, prefix + "{aggregate_type}.{event_type}")
    event(db)
    event(db, topic=names["own"])
    nothing_pending(db)
    assert len(kafka.consume(names["order.placed"])) == len(kafka.consume(names["own"])) == 1


@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_JP"])
def test_text_arrives_as_utf8_from_a_database_of_another_encoding(pg, kafka, topic, encoding):
    word, header = ("für 5 £", "café") if encoding == "LATIN1" else ("注文", "日本")
    name = f"db_{uuid.uuid4().hex[:10]}"
    pg.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING {encoding} LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        db = Database(pg, name)
        db.sql("CREATE EXTENSION outbox")
        make_sink(db, kafka, topic, format="envelope")
        with db.connect(client_encoding="UTF8") as c:
            assert c.execute("SHOW server_encoding").fetchone() == (encoding,)
            payload = f'{{"word": "{word}"}}'
            for cast in ("text", "json", "jsonb"):
                c.execute(f"SELECT outbox.add_event(%s, %s, %s::{cast}, headers => jsonb_build_object('h', %s::text))",
                          [word, word.replace(" ", "_"), payload, header])
            c.execute("SELECT outbox.add_event(%s, 'x', %s::bytea)", [word, word.encode()])
        records = kafka.consume(topic, until=4)
        for record in records[:3]:
            assert record.key == word.encode()
            assert record.value.decode().endswith(f'"data":{payload}}}')
            assert record.header("h") == header and record.header("event_type") == word.replace(" ", "_")
            assert json.loads(record.value)["aggregate_id"] == word
        assert records[3].json()["data_base64"] == base64.b64encode(word.encode()).decode()
    finally:
        pg.sql(f"DROP DATABASE {name} WITH (FORCE)")
