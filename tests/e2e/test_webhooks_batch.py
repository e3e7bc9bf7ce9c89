"""Several events in a request, the option batch: put together once, sent again as they were, taken apart when they are refused."""
import json
import time
from collections import defaultdict

import psycopg
import pytest
from harness import checker
from harness.factor import scaled
from harness.wait import eventually
from harness.webhooks import make_webhook_sink, paused, state_is, write, write_while_paused
from harness.workload import Killer, nothing_pending

PG_FLAVOUR = "faults"
PG_CONF = {"outbox.retry_scale": "0.0001", "outbox.poll_interval": "100ms"}


def requests_of(hooks):
    """Event ids to the ids of the requests that had them. A request that comes again has the same bytes."""
    bodies, requests = {}, defaultdict(set)
    for r in hooks.requests:
        assert bodies.setdefault(r.id, r.body) == r.body, r.id
        for e in r.events:
            requests[e["event_id"]].add(r.id)
    return requests


def all_arrived(db, hooks, repeats=None):
    nothing_pending(db)
    verdict = checker.check(checker.committed(db), hooks.records()).must_hold(repeats=repeats)
    assert all(r.verified for r in hooks.requests) and not hooks.overlapping()
    return verdict


def healed(db, hooks):
    """What was refused is taken now, and everything has arrived, once."""
    hooks.heal()
    db.sql("SELECT outbox.redrive('hooks')")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 30, "nothing is parked")
    all_arrived(db, hooks, repeats=0)


def test_one_event_goes_as_without_the_option(db, hooks):
    make_webhook_sink(db, hooks, batch=10, idempotency_key="true")
    event_id = db.value("SELECT outbox.add_event('k', 'changed', '{}')")
    nothing_pending(db)
    request, = hooks.requests
    assert request.id == str(event_id) == request.event["event_id"] == request.header("idempotency-key")
    assert db.value("SELECT requests FROM outbox.progress ORDER BY batch DESC LIMIT 1") is None


def test_a_request_is_no_larger_than_a_megabyte(db, hooks):
    make_webhook_sink(db, hooks, batch=100)
    with paused(db):
        db.sql("SELECT outbox.add_event('k' || g, 'large', json_build_object('text', repeat('x', size)))"
               " FROM (VALUES (1, 400000), (2, 400000), (3, 400000), (4, 400000), (5, 800000), (6, 400000), (7, 10)) v(g, size)")
    all_arrived(db, hooks, repeats=0)
    assert sorted(len(r.events) for r in hooks.requests) == [1, 2, 2, 2]
    assert all(len(r.body) < 1 << 20 for r in hooks.requests)


def stop_answering(db, hooks, rng, how):
    if how == "busy":
        return hooks.answer(503)
    return hooks.answer(how="never" if how != "reset" else "reset")


@pytest.mark.parametrize("how", ["busy", "reset", "time_out", "relay", "server"])
def test_a_request_is_sent_again_as_it_was(db, hooks, rng, how):
    """An outage, no answer, a relay that is terminated and a crash, while late transactions commit events before it and newer ones come:
    whatever had been sent has the same id, the same events and the same bytes, and no event comes in another request."""
    make_webhook_sink(db, hooks, batch=6, concurrency=4, request_timeout="1s" if how == "time_out" else "15s", lanes=rng.choice([1, 2]))
    for _ in range(scaled(1)):
        asked = len(hooks.requests)
        with db.connect() as late, db.connect() as later:
            for c in (late, later):
                c.execute("SELECT outbox.add_event('late-' || g, 'late', '{}') FROM generate_series(1, 7) g")
            rule = stop_answering(db, hooks, rng, how)
            write_while_paused(db, 200, keys=50)
            later.execute("SELECT outbox.add_event('late-' || g, 'late', '{}') FROM generate_series(1, 7) g")
            eventually(lambda: len(hooks.requests) > asked, 20, "a request")
            late.commit()
            if how in ("busy", "reset", "time_out"):
                state_is(db, "backing_off")
            elif how == "relay":
                Killer(db, rng).terminate()
            else:
                Killer(db, rng).crash()
                # Their sessions are gone, and what they wrote.
            write(db, 30, keys=50)
            try:
                later.commit()
            except psycopg.OperationalError:
                assert how == "server"
        rule.over()
        hooks.heal()
        all_arrived(db, hooks)
    twice = {e: ids for e, ids in requests_of(hooks).items() if len(ids) > 1}
    assert not twice, f"{len(twice)} events came in more than one request"
    assert len(hooks.requests) > len({r.id for r in hooks.requests}), "none had to be sent again"


def test_a_refused_request_is_taken_apart_and_counts_no_attempt_of_the_innocent(db, hooks):
    """on_poison hold: what is behind the guilty one of its key waits, everything else arrives."""
    make_webhook_sink(db, hooks, batch=10, attempts=2)
    hooks.answer(422, type="bad")
    with paused(db):
        db.sql("SELECT outbox.add_event('key-' || g % 5, CASE WHEN g = 13 THEN 'bad' ELSE 'good' END, json_build_object('row', g))"
               " FROM generate_series(1, 30) g")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked WHERE reason = 'dead'") == 1, 20, "it is dead")
    behind = [e.event_id for e in checker.committed(db) if e.key == "key-3" and json.loads(e.payload)["row"] >= 13]
    nothing_pending(db)
    good = [e for e in checker.committed(db) if e.event_id not in behind]
    checker.check(good, hooks.records()).must_hold(repeats=0)
    assert db.value("SELECT attempts FROM outbox.parked WHERE reason = 'dead'") == 2
    assert sum(r.has(type="bad") for r in hooks.requests) == 3, "with the others, by itself, and again"
    assert db.value("SELECT max(attempts) FROM outbox.parked WHERE reason <> 'dead'") in (0, None)
    healed(db, hooks)


def test_the_first_request_after_an_outage_may_be_a_refused_one(db, hooks):
    """The probe has several events, one of which is at fault."""
    make_webhook_sink(db, hooks, batch=10)
    outage = hooks.answer(503)
    write_while_paused(db, 5, type="bad", keys=1)
    write(db, 15, keys=5)
    state_is(db, "backing_off")
    hooks.answer(422, type="bad")
    outage.over()
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked WHERE reason = 'retry'") == 1, 30, "the first of its key is parked")
    healed(db, hooks)


def test_an_array_that_is_refused_late_is_taken_apart_all_the_same(db, hooks):
    """The answer comes when the batch has been cut short."""
    make_webhook_sink(db, hooks, batch=10, stall_timeout="300ms")
    hooks.answer(422, type="bad", delay=0.6)
    write_while_paused(db, 3, type="bad", keys=3)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked WHERE reason = 'retry'") == 3, 20, "each is parked by itself")
    assert sum(len(r.events) > 1 for r in hooks.requests) == 1
    healed(db, hooks)


def test_a_probe_takes_along_nothing_that_waits_behind_a_parked_event(db, hooks):
    """The first of a key is refused; the next of it is in one request with others when the endpoint goes down."""
    make_webhook_sink(db, hooks, batch=2)
    hooks.answer(422, type="bad")
    with paused(db):
        db.sql("SELECT outbox.add_event(key, type, '{}') FROM (VALUES ('x', 'bad'), ('y', 'good'), ('z', 'down'), ('x', 'behind')) v(key, type)")
        outage = hooks.answer(503, type="down")
    state_is(db, "backing_off")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked WHERE reason = 'retry'") == 1, 20, "the first of x is parked")
    db.sql("UPDATE outbox.parked_events SET next_attempt_at = 'infinity' WHERE reason = 'retry'")
    outage.over()
    nothing_pending(db)
    assert not any(r.has(type="behind") and r.status == 204 for r in hooks.requests)
    hooks.heal()
    db.sql("UPDATE outbox.parked_events SET next_attempt_at = now() WHERE reason = 'retry'")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 30, "nothing is parked")
    all_arrived(db, hooks, repeats=0)


def test_another_format_takes_apart_what_was_put_together(db, hooks):
    make_webhook_sink(db, hooks, batch=10)
    outage = hooks.answer(503)
    write_while_paused(db, 20, keys=20)
    state_is(db, "backing_off")
    db.sql("ALTER SERVER hooks OPTIONS (DROP batch, ADD format 'cloudevents')")
    outage.over()
    db.sql("SELECT outbox.resume('hooks')")
    nothing_pending(db)
    taken = [r for r in hooks.requests if r.status == 204]
    assert sorted(r.header("ce-id") for r in taken) == sorted(e.event_id for e in checker.committed(db))
    assert all(json.loads(r.body)["row"] for r in taken)


def test_fewer_requests_for_the_same_events(db, hooks):
    """A slow endpoint takes 100 events for each of its answers."""
    make_webhook_sink(db, hooks, batch=100, concurrency=1)
    hooks.default.delay = 0.05
    begin = time.monotonic()
    write_while_paused(db, scaled(1000), keys=500)
    all_arrived(db, hooks, repeats=0)
    assert len(hooks.requests) == scaled(10), f"in {time.monotonic() - begin:.1f} s"


def test_the_option_can_be_changed_while_a_request_is_out(db, hooks):
    """What was put together before stays together."""
    make_webhook_sink(db, hooks, batch=10)
    outage = hooks.answer(503)
    write_while_paused(db, 30, keys=30)
    state_is(db, "backing_off")
    first = len(hooks.requests[0].events)
    db.sql("ALTER SERVER hooks OPTIONS (SET batch '1')")
    outage.over()
    db.sql("SELECT outbox.resume('hooks')")
    all_arrived(db, hooks)
    assert first == 10 and all(len(ids) == 1 for ids in requests_of(hooks).values())
    write_while_paused(db, 30, keys=30)
    all_arrived(db, hooks)
    assert all(len(r.events) == 1 for r in hooks.requests[-30:])


def test_other_formats_have_no_place_for_several(db):
    with pytest.raises(psycopg.Error, match='option "batch" needs the format webhook'):
        db.sql("CREATE SERVER s FOREIGN DATA WRAPPER outbox_http OPTIONS (url 'https://example.com/', format 'cloudevents', batch '2')")
    with pytest.raises(psycopg.Error, match="batch"):
        db.sql("CREATE SERVER s FOREIGN DATA WRAPPER outbox_http OPTIONS (url 'https://example.com/', batch '1001')")
