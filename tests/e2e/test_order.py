"""The order that nobody has to ask for: of the calls in one transaction, and of a key over lanes."""
import json
import threading

from harness import checker
from harness.factor import scaled
from harness.workload import Threads, make_sink, nothing_pending


def test_calls_of_one_transaction_keep_their_order(db, kafka, topic):
    """B14. created_at and now() tell nothing here; nor do random event ids."""
    make_sink(db, kafka, topic)
    with db.connect(autocommit=False) as c:
        for number in range(500):
            c.execute("SELECT outbox.add_event('k', 'x', %s)", [str(number)])
    db.sql("""DO $$ BEGIN
                  FOR i IN 500..599 LOOP
                      PERFORM outbox.add_event('k', 'x', i::text, event_id => gen_random_uuid());
                  END LOOP;
                  PERFORM outbox.add_event('k', 'x', g::text) FROM generate_series(600, 699) g ORDER BY g;
                  INSERT INTO outbox.events (aggregate_id, event_type, payload) SELECT 'k', 'x', to_json(g) FROM generate_series(700, 799) g ORDER BY g;
              END $$""")
    assert [int(r.value) for r in kafka.consume(topic, until=800)] == list(range(800))


def test_each_key_keeps_its_order_over_several_lanes_and_writers(db, kafka, rng):
    """B12. Each writer has keys of its own, so that their events have an order."""
    topic = kafka.create_topic(partitions=3)
    make_sink(db, kafka, topic, lanes=4, batch_size=20)
    threads, keys, each, lock, left = Threads(), 8, scaled(10), threading.Lock(), []

    def write(writer):
        turns = [key for key in range(keys) for _ in range(each)]
        with lock:
            rng.shuffle(turns)
        numbers = dict.fromkeys(range(keys), 0)
        with db.connect() as c:
            for key in turns:
                numbers[key] += 1
                c.execute("SELECT outbox.add_event(%s, 'x', %s)", [f"{writer}-{key}", json.dumps(numbers[key])])
        left.append(writer)
    for writer in range(8):
        threads.start(write, writer)
    threads.join()
    assert len(left) == 8
    nothing_pending(db)
    events = checker.committed(db)
    records = kafka.consume(topic, until=checker.has_all(events))
    checker.check(events, records).must_hold(repeats=0)
    seen = {}
    for record in records:
        assert int(record.value) == seen.get(record.key, 0) + 1, record
        seen[record.key] = int(record.value)
    assert set(seen.values()) == {each} and len(seen) == 64
