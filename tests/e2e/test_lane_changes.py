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
