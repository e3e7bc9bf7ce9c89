"""An endpoint that is away, or deployed wrongly: nothing is tried meanwhile but a probe, nothing is counted, and it ends by itself."""
import time

import pytest
from harness import checker
from harness.factor import scaled
from harness.wait import eventually, never
from harness.webhooks import lag, make_webhook_sink, new_secret, state_is, write
from harness.workload import nothing_pending

# Of relays, for one that has a transaction open or holds vacuum back.
OPEN = """
    SELECT pid, state, xact_start, backend_xmin FROM pg_stat_activity
    WHERE backend_type = 'outbox relay' AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL)
"""


def ours(lines):
    return [line for line in lines.splitlines() if "outbox" in line]


def outage(db, hooks, seconds, what):
    """Nothing is parked, counted, held open, and next to nothing is asked. Returns the requests of this time."""
    state_is(db, "backing_off")
    begin = len(hooks.requests)
    with db.connect() as c:
        def wrong():
            state, error, parked, dead = c.execute("SELECT state, last_error, parked, dead FROM outbox.lag").fetchone()
            if state != "backing_off" or what not in (error or "") or (parked, dead) != (0, 0):
                return state, error, parked, dead
            # A pass begins a transaction now and then, and ends it at once: held open is what is there for a while.
            first = set(c.execute(OPEN).fetchall())
            if first:
                time.sleep(0.1)
            return first & set(c.execute(OPEN).fetchall())
        never(wrong, seconds, "the outage shows wrongly", interval=0.1)
        assert c.execute("SELECT count(*) FROM outbox.parked").fetchone() == (0,)
    return hooks.requests[begin:]


def bounded(probes, seconds):
    """One at a time, with pauses that grow."""
    assert len(probes) <= 6 + seconds, f"{len(probes)} requests within {seconds:g} s"
    for a, b in zip(probes, probes[1:], strict=False):
        assert a.ended is not None and a.ended <= b.at, "two at a time"


def test_an_outage_of_a_minute_counts_nothing_and_all_arrives_in_order_afterwards(db, hooks):
    """60 s with T=10."""
    make_webhook_sink(db, hooks)
    write(db, 50)
    hooks.wait_for(50)
    nothing_pending(db)
    before = db.pg.mark()
    hooks.answer(503)
    write(db, 500)
    probes = outage(db, hooks, scaled(6.0), "503")
    bounded(probes, scaled(6.0))
    write(db, 100)
    hooks.heal()
    nothing_pending(db)
    events = checker.committed(db)
    assert len(events) == 650
    checker.check(events, hooks.records()).must_hold(repeats=0)
    assert not hooks.overlapping()
    eventually(lambda: lag(db) == ("idle", "", 0, 0), 10, lambda: f"the error is over: {lag(db)}")
    lines = ours(db.pg.log_since(before))
    assert 2 <= len(lines) <= 6, "\n".join(lines)


def test_a_wrong_deploy_kills_no_event(db, hooks):
    """30 s with T=10."""
    hooks.answer(404, body=b"no such page")
    make_webhook_sink(db, hooks)
    write(db, 200)
    bounded(outage(db, hooks, scaled(3.0), "404"), scaled(3.0))
    hooks.heal()
    nothing_pending(db)
    checker.check(checker.committed(db), hooks.records()).must_hold(repeats=0)
    assert lag(db)[2:] == (0, 0)


def test_an_endpoint_that_nobody_answers_for_is_asked_one_thing_at_a_time(db, hooks):
    hooks.answer(how="never")
    make_webhook_sink(db, hooks, request_timeout="500ms")
    write(db, 200)
    probes = outage(db, hooks, scaled(4.0), "")
    assert len(probes) <= 6 + scaled(4.0)
    hooks.heal()
    nothing_pending(db)
    # The eight of the first moment and the probes may have been taken.
    checker.check(checker.committed(db), hooks.records()).must_hold()
    assert not hooks.overlapping()


def test_after_an_outage_one_probe_decides(db, hooks):
    """Half-open: the probe is refused again and again, and whatever else is pending waits for it."""
    hooks.answer(503)
    make_webhook_sink(db, hooks)
    write(db, 100, keys=100)
    state_is(db, "backing_off")
    asked = len(hooks.requests)
    eventually(lambda: len(hooks.requests) >= asked + 3, 60, "three probes")
    assert len({r.id for r in hooks.requests[asked:]}) == 1, "always the same event"
    hooks.heal()
    hooks.wait_for(100)


def test_too_many_requests_halve_what_is_out_at_a_time(db, hooks):
    hooks.default.delay = 0.05
    make_webhook_sink(db, hooks, concurrency=8)
    write(db, 100, keys=100)
    hooks.wait_for(100)
    assert hooks.most_in_flight == 8
    hooks.answer(429, times=1)
    write(db, 60, keys=60)
    eventually(lambda: any(r.status == 429 for r in hooks.requests), 20, "it is refused")
    refused = next(r for r in hooks.requests if r.status == 429)
    hooks.wait_for(160)
    nothing_pending(db)
    # After the pause it begins with half as many, or fewer.
    later = [r for r in hooks.requests if r.at > refused.ended + 0.2]
    first = later[:12]  # four times as many as are out at a time, and it takes one more
    most = max(sum(1 for b in first if b.at <= a.at < b.ended) for a in first)
    assert most <= 4, f"{most} at a time"
    checker.check(checker.committed(db), hooks.records()).must_hold(repeats=0)


@pytest.mark.parametrize("lanes", [1, 3])
def test_one_endpoint_that_is_down_delays_no_other(db, make_hooks, lanes):
    """B89. One that hangs: test_webhooks_many.py."""
    down, up = make_hooks([new_secret()]), make_hooks()
    down.answer(503)
    make_webhook_sink(db, down, "down", lanes=lanes)
    make_webhook_sink(db, up, "up", lanes=lanes)
    write(db, 300)
    up.wait_for(300)
    state_is(db, "backing_off", "down")
    assert db.value("SELECT pending FROM outbox.lag WHERE sink = 'down'") == 300
    down.heal()
    down.wait_for(300)
    nothing_pending(db)
    for server in (up, down):
        checker.check(checker.committed(db), server.records()).must_hold(repeats=0)


def test_a_network_that_breaks_now_and_then_loses_nothing(db, hooks, rng):
    make_webhook_sink(db, hooks, request_timeout="2s")
    end = time.monotonic() + scaled(4.0)
    while time.monotonic() < end:
        write(db, 20)
        hooks.drop()
        hooks.answer(how=rng.choice(["reset", "close", "half_close"]), times=rng.choice([1, 3]))
        time.sleep(rng.random() * 0.2)  # the network's own pace
    hooks.heal()
    nothing_pending(db)
    checker.check(checker.committed(db), hooks.records()).must_hold()
    assert lag(db)[2:] == (0, 0)
