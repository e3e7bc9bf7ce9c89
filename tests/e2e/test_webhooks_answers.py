"""What an endpoint answers, and what becomes of the event: delivered, the endpoint's fault, or the event's own."""
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from harness import checker
from harness.factor import scaled
from harness.wait import eventually, never
from harness.webhooks import lag, make_webhook_sink, state_is, write
from harness.workload import nothing_pending

PG_CONF = {"outbox.poll_interval": "100ms", "max_worker_processes": 40}
# Seconds before each attempt after the first.
PAUSES = [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]


def parked(db):
    return db.sql("SELECT reason, attempts, last_error FROM outbox.parked ORDER BY id")


def make_due(db):
    db.sql("UPDATE outbox.parked_events SET next_attempt_at = clock_timestamp() WHERE next_attempt_at IS NOT NULL")


DELIVERED = [200, 201, 202, 204, 299]
ENDPOINTS_FAULT = [300, 301, 302, 307, 308, 401, 403, 404, 405, 407, 408, 421, 425, 429, 500, 501, 502, 503, 504, 507, 599]
EVENTS_FAULT = [400, 402, 406, 409, 411, 413, 415, 418, 422, 451]


def sink_of_each(db, hooks, values, **options):
    """A sink for each of the values, whose path it is; they see the same events."""
    for value in values:
        make_webhook_sink(db, f"{hooks.url}/{value}", f"s{value}", mapping={"secret": hooks.secrets[0]}, **options)


def test_2xx_is_delivered(db, hooks):
    """B88, as the tests below: each status as the table in docs/webhooks.md has it."""
    for status in DELIVERED:
        hooks.answer(status, body=b"fine", path=f"/{status}")
    sink_of_each(db, hooks, DELIVERED)
    write(db, 3)
    nothing_pending(db)
    assert len(hooks.requests) == 3 * len(DELIVERED) and hooks.repeats == 0
    assert {row for row in db.sql("SELECT parked, dead FROM outbox.lag")} == {(0, 0)}


def test_the_endpoints_fault_backs_off_and_counts_nothing(db, hooks):
    for status in ENDPOINTS_FAULT:
        hooks.answer(status, headers={"Location": hooks.url + "/elsewhere"} if status < 400 else {}, body=b"no", path=f"/{status}")
    sink_of_each(db, hooks, ENDPOINTS_FAULT)
    write(db, 20)

    def wrong():
        return [row for row in db.sql("SELECT sink, state, last_error, pending, parked, dead FROM outbox.lag")
                if row[1] != "backing_off" or row[0][1:] not in (row[2] or "") or row[3:] != (20, 0, 0)]
    eventually(lambda: not wrong(), 30, lambda: f"each of them backs off: {wrong()}")
    never(wrong, 0.5, "one of them does not")
    hooks.heal()
    nothing_pending(db)
    assert {r.path for r in hooks.requests} == {f"/{status}" for status in ENDPOINTS_FAULT}, "no redirect is followed"
    events = checker.committed(db)
    for status in ENDPOINTS_FAULT:
        checker.check(events, hooks.records(f"/{status}")).must_hold(repeats=0)
    eventually(lambda: set(db.sql("SELECT state, last_error, parked, dead FROM outbox.lag")) == {("idle", None, 0, 0)}, 10,
               lambda: f"the error is over: {db.sql('SELECT * FROM outbox.lag')}")


@pytest.mark.parametrize("how", ["reset", "close", "half_close", "never", "trickle"])
def test_a_broken_answer_is_the_endpoints_fault(db, hooks, how):
    """trickle: an answer that does not come to its end in time."""
    hooks.answer(200, how=how, body=b"x" * 1000)
    make_webhook_sink(db, hooks, request_timeout="1s")
    write(db, 20)
    state_is(db, "backing_off")
    assert lag(db)[1] and lag(db)[2:] == (0, 0)
    never(lambda: lag(db)[2:] != (0, 0), scaled(1.0), "something is parked")
    hooks.heal()
    nothing_pending(db)
    # What had not been answered may have been taken: it comes again, as the same event.
    checker.check(checker.committed(db), hooks.records()).must_hold(repeats=8)
    assert not hooks.overlapping()


def test_an_answer_that_trickles_but_ends_in_time_is_an_answer(db, hooks):
    hooks.answer(200, how="trickle", body=b"0123456789", pace=0.05)
    make_webhook_sink(db, hooks, request_timeout="5s")
    write(db, 10)
    nothing_pending(db)
    assert len(hooks.requests) == 10


def test_nobody_listens(db, hooks):
    hooks.stop()
    make_webhook_sink(db, hooks)
    write(db, 20)
    state_is(db, "backing_off")
    assert "onnect" in lag(db)[1] and lag(db)[2:] == (0, 0)
    hooks.start()
    nothing_pending(db)
    checker.check(checker.committed(db), hooks.records()).must_hold(repeats=0)


def test_a_connection_that_the_endpoint_has_ended_meanwhile_is_replaced(db, hooks):
    """A kept connection ends between two requests: no fault of anybody's."""
    hooks.answer(200, how="then_half_close")
    make_webhook_sink(db, hooks, concurrency=1)
    for _ in range(scaled(10)):
        write(db, 1)
        nothing_pending(db)
        assert lag(db)[1] == ""
    assert len(hooks.accepted) == scaled(10)


@pytest.mark.parametrize("what", [{"body": b"x" * 50_000_000}, {"headers": {f"X-{n}": "y" * 8000 for n in range(100)}}, {"headers": {"X": "y" * 2_000_000}}])
def test_an_answer_without_end_costs_no_memory_and_harms_nobody(db, hooks, what):
    """B92. An answer is taken as it comes: libcurl is not asked to unpack one."""
    hooks.answer(200, times=3, **what)
    make_webhook_sink(db, hooks)
    write(db, 3)
    nothing_pending(db)
    assert lag(db)[2:] == (0, 0)
    pid = db.value("SELECT pid FROM outbox.relays")
    with open(f"/proc/{pid}/status") as f:
        peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    assert peak < 120_000, f"{peak} kB"


def test_the_words_for_a_time_out_and_for_headers_that_are_too_large_are_true(db, hooks):
    make_webhook_sink(db, hooks, concurrency=1, request_timeout="500ms")
    write(db, 1)
    hooks.wait_for(1)  # from here on the connection is there
    hooks.answer(how="never", times=1)
    write(db, 1)
    eventually(lambda: "no whole answer within 500 ms" in lag(db)[1], 20, lambda: f"a time-out of the answer, not of the connection: {lag(db)}")
    nothing_pending(db)
    hooks.answer(200, headers={"X": "y" * 2_000_000})
    write(db, 1)
    eventually(lambda: "headers are larger than" in lag(db)[1], 20, lambda: f"headers are too large: {lag(db)}")


def test_the_events_own_fault_parks_it_and_what_is_behind_it_and_nothing_else(db, hooks):
    for status in EVENTS_FAULT:
        hooks.answer(status, body=b"what is this supposed to be? " * 100, type="bad", path=f"/{status}")
    sink_of_each(db, hooks, EVENTS_FAULT)
    db.sql("SELECT outbox.add_event('k', 'bad', '1')")
    db.sql("SELECT outbox.add_event('k', 'good', '2')")
    write(db, 20)
    nothing_pending(db)
    for status in EVENTS_FAULT:
        rows = db.sql("SELECT reason, attempts, last_error FROM outbox.parked WHERE sink = %s ORDER BY id", [f"s{status}"])
        assert [r[:2] for r in rows] == [("retry", 1), ("behind", 0)], (status, rows)
        error = rows[0][2]
        assert str(status) in error and "what is this supposed to be" in error and len(error) < 1000, error
        assert lag(db, f"s{status}")[0] in ("idle", "running") and lag(db, f"s{status}")[2:] == (2, 0)
        assert len([r for r in hooks.of(path=f"/{status}") if r.status == 204]) == 20

    def at_once():
        """The second attempts that came before their time, which is 5 s after the first."""
        tries = [hooks.of(key="k", path=f"/{status}") for status in EVENTS_FAULT]
        return [t[1].path for t in tries if len(t) > 1 and t[1].at < t[0].ended + PAUSES[0] / 2]
    never(at_once, scaled(0.5), "tried again at once")
    hooks.heal()
    make_due(db)
    eventually(lambda: parked(db) == [], 20, "nothing is parked")
    events = checker.committed(db)
    for status in EVENTS_FAULT:
        checker.check(events, hooks.records(f"/{status}")).must_hold(repeats=0)


def test_the_pauses_are_those_that_are_documented_and_then_it_is_dead(db, hooks):
    hooks.answer(422, type="bad")
    make_webhook_sink(db, hooks)
    db.sql("SELECT outbox.add_event('k', 'bad', '1')")
    for attempt, pause in enumerate(PAUSES, 1):
        eventually(lambda: parked(db) and parked(db)[0][1] == attempt, 20, lambda: f"attempt {attempt}: {parked(db)}")
        took = db.value("SELECT extract(epoch FROM next_attempt_at - clock_timestamp()) FROM outbox.parked")
        assert pause * 0.5 <= float(took) + 5 and float(took) <= pause * 1.5, f"pause {attempt}: {took} s, documented are {pause}"
        make_due(db)
    eventually(lambda: parked(db)[0][:2] == ("dead", 10), 20, lambda: f"dead: {parked(db)}")
    assert len(hooks.requests) == 10 and len({r.body for r in hooks.requests}) == 1
    assert lag(db)[2:] == (0, 1)
    hooks.heal()
    db.sql("SELECT outbox.redrive('hooks')")
    hooks.wait_for(1)
    eventually(lambda: parked(db) == [], 10, "nothing is parked")


@pytest.mark.parametrize("on_poison", ["hold", "skip"])
def test_a_dead_event_holds_its_key_or_not(db, hooks, on_poison):
    hooks.answer(400, type="bad")
    make_webhook_sink(db, hooks, attempts=1, on_poison=on_poison)
    for number, kind in enumerate(["good", "bad", "good", "good"]):
        db.sql("SELECT outbox.add_event('k', %s, %s)", [kind, str(number)])
    if on_poison == "hold":
        eventually(lambda: [r[0] for r in parked(db)] == ["dead", "behind", "behind"], 10, lambda: f"parked: {parked(db)}")
        assert len(hooks.requests) == 2
        db.sql("SELECT outbox.discard('hooks', event_id, 'a test') FROM outbox.parked WHERE reason = 'dead'")
    hooks.wait_for(3)
    eventually(lambda: [r[0] for r in parked(db)] == (["dead"] if on_poison == "skip" else []), 10, lambda: f"parked: {parked(db)}")
    assert [r.data for r in hooks.accepted.values()] == [b"0", b"2", b"3"]


def test_an_outage_between_two_attempts_of_a_parked_event_counts_none(db, hooks):
    hooks.answer(400, type="bad")
    make_webhook_sink(db, hooks)
    db.sql("SELECT outbox.add_event('k', 'bad', '1')")
    eventually(lambda: parked(db) and parked(db)[0][:2] == ("retry", 1), 10, "parked")
    hooks.answer(503, type="bad")
    make_due(db)
    eventually(lambda: any(r.status == 503 for r in hooks.requests), 20, "it is tried again")
    write(db, 5)
    never(lambda: parked(db)[0][:2] != ("retry", 1), scaled(1.0), lambda: f"it counts: {parked(db)}")
    hooks.heal()
    make_due(db)
    hooks.wait_for(6)
    eventually(lambda: parked(db) == [], 20, "nothing is parked")


def test_gone_disables_the_sink_and_drops_nothing(db, hooks):
    hooks.answer(410)
    make_webhook_sink(db, hooks)
    write(db, 50)
    state_is(db, "disabled")
    assert "410" in lag(db)[1] and lag(db)[2:] == (0, 0) and db.value("SELECT pending FROM outbox.lag") == 50
    asked = len(hooks.requests)
    write(db, 50)
    never(lambda: len(hooks.requests) > asked, scaled(1.0), "it is asked again")
    assert asked <= 8
    hooks.heal()
    db.sql("SELECT outbox.resume('hooks')")
    hooks.wait_for(100)
    checker.check(checker.committed(db), hooks.records()).must_hold(repeats=0)


def test_gone_holds_through_a_restart_and_other_changes_until_there_is_another_url(db, hooks):
    """Nor does another lane ask."""
    hooks.answer(410, path="/")
    make_webhook_sink(db, hooks, lanes=3, concurrency=1)
    write(db, 50)
    eventually(lambda: db.sql("SELECT DISTINCT state FROM outbox.relays") == [("disabled",)], 20, "all of its lanes are disabled")
    asked = len(hooks.requests)
    make_webhook_sink(db, hooks, "other", events="none/none")
    db.sql("ALTER SERVER hooks OPTIONS (SET concurrency '2')")
    write(db, 10)
    never(lambda: len(hooks.requests) > asked, scaled(0.5), "it is asked again")
    db.pg.restart()
    eventually(lambda: db.sql("SELECT DISTINCT state FROM outbox.relays WHERE sink = 'hooks'") == [("disabled",)], 20, "they are disabled again")
    assert "410" in lag(db)[1] and "another url" in lag(db)[1] and lag(db)[2:] == (0, 0)
    never(lambda: len(hooks.requests) > asked, scaled(0.5), "it is asked again")
    db.sql(f"ALTER SERVER hooks OPTIONS (SET url '{hooks.url}/new')")
    nothing_pending(db)
    assert lag(db)[1] == ""
    checker.check(checker.committed(db), hooks.records("/new")).must_hold(repeats=0)


def test_gone_to_a_replay_disables_the_sink_too(db, hooks):
    make_webhook_sink(db, hooks)
    write(db, 5)
    nothing_pending(db)
    hooks.answer(410)
    db.sql("SELECT outbox.replay('hooks', now() - interval '1 hour')")
    state_is(db, "disabled")
    asked = len(hooks.requests)
    write(db, 5)
    never(lambda: len(hooks.requests) > asked, scaled(0.5), "it is asked again")
    hooks.heal()
    db.sql("SELECT outbox.resume('hooks')")
    nothing_pending(db)
    eventually(lambda: db.sql("SELECT state, sent FROM outbox.replays") == [("done", 5)], 30, lambda: f"it ends: {db.sql('SELECT * FROM outbox.replays')}")


def test_resume_tries_at_once_what_waits(db, hooks):
    hooks.answer(503, times=1, headers={"Retry-After": "3600"})
    make_webhook_sink(db, hooks)
    write(db, 3)
    state_is(db, "backing_off")
    assert lag(db)[1].startswith("HTTP 503 Service Unavailable, Retry-After 3600 s")
    never(lambda: lag(db)[0] != "backing_off", scaled(1.0), "it waits")
    db.sql("SELECT outbox.resume('hooks')")
    hooks.wait_for(3)
    nothing_pending(db)


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_honoured(db, hooks, form):
    after = "3" if form == "seconds" else format_datetime(datetime.now(timezone.utc) + timedelta(seconds=5), usegmt=True)
    hooks.answer(503, times=1, headers={"Retry-After": after})
    make_webhook_sink(db, hooks, concurrency=1)
    write(db, 3)
    hooks.wait_for(3)
    first, second = hooks.requests[:2]
    # A date has whole seconds, and it took a moment to begin.
    assert second.at - first.ended > (2.9 if form == "seconds" else 2.0)


def test_retry_after_to_one_request_holds_although_others_that_are_out_are_taken(db, hooks):
    hooks.answer(204, delay=0.3)
    hooks.answer(429, times=1, headers={"Retry-After": "3"}, key="key-1")
    make_webhook_sink(db, hooks)
    write(db, 4)
    hooks.wait_for(4)
    assert [r.status for r in hooks.of(key="key-2")] == [204]
    refused, taken = hooks.of(key="key-1")
    assert taken.at - refused.ended > 2.9


def test_retry_after_is_capped_and_nonsense_is_none(db, hooks):
    hooks.answer(429, times=1, headers={"Retry-After": "86400"})
    hooks.answer(503, times=1, headers={"Retry-After": "soon"})
    make_webhook_sink(db, hooks, retry_after_limit="1s")
    write(db, 3)
    begin = time.monotonic()
    hooks.wait_for(3)
    assert time.monotonic() - begin < 30
