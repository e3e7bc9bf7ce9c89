"""Changing the number of lanes while events are written and late transactions are open."""
import pytest
from harness import checker
from harness.factor import scaled
from harness.late_commits import Load
from harness.wait import eventually
from harness.workload import Killer, make_sink, nothing_pending, relays

BATCH = 100


def set_lanes(db, option, lanes, then=lambda: None):
    db.sql(f"ALTER SERVER kafka OPTIONS ({option})")
    then()
    eventually(lambda: [lane for lane, in db.sql("SELECT lane FROM outbox.lanes ORDER BY lane")] == list(range(lanes)), 30, f"{lanes} lanes")
    eventually(lambda: len(relays(db)) == lanes, 30, f"{lanes} relays")


@pytest.mark.parametrize("crash", [False, True], ids=["undisturbed", "with_crashes_in_the_middle"])
def test_lanes_from_one_to_four_to_two_to_one_under_load(db, kafka, seed, rng, crash):
    topic = kafka.create_topic(partitions=3)
    make_sink(db, kafka, topic, batch_size=BATCH)
    killer, load = Killer(db, rng), Load(db, seed, scaled(15), scaled(500))
    then = killer.crash if crash else lambda: None
    load.start()
    load.wait_for(0.2)
    set_lanes(db, "ADD lanes '4'", 4, then)
    load.wait_for(0.6)
    set_lanes(db, "SET lanes '2'", 2, then)
    load.join()
    nothing_pending(db)
    set_lanes(db, "DROP lanes", 1)
    db.sql("SELECT outbox.add_event('end', 'end', '{}')")
    nothing_pending(db)
    events = checker.committed(db)
    verdict = checker.check(events, kafka.consume(topic))
    print(verdict)
    verdict.must_hold(repeats=killer.most_repeats(4, BATCH))


def test_what_is_parked_holds_its_keys_back_in_the_lanes_that_they_come_to(db, mock):
    """Each relay knows the parked keys of its own lane alone; fewer lanes are given keys of others."""
    keys = [f"k{n}" for n in range(20)]
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", lanes=4, message_max_bytes=1000)
    eventually(lambda: len(relays(db)) == 4, 30, "4 relays")
    for key in keys:
        db.sql("SELECT outbox.add_event(%s, 'large', to_json(repeat('x', 2000)))", [key])
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked WHERE reason = 'dead'") == len(keys), 30, "all are dead")
    for option, lanes in [("SET lanes '2'", 2), ("DROP lanes", 1), ("ADD lanes '3'", 3)]:
        set_lanes(db, option, lanes)
        for key in keys:
            db.sql("SELECT outbox.add_event(%s, 'small', '1')", [key])
        nothing_pending(db)
        db.sql("DELETE FROM outbox.parked_events WHERE reason = 'behind'")
    db.sql("SELECT outbox.add_event('other', 'small', '1')")
    assert [r.key for r in mock.consume("t", until=lambda got: any(r.key == b"other" for r in got))] == [b"other"]
