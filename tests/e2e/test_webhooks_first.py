"""From add_event to an endpoint that verifies the signature."""
import base64
import hashlib
import hmac
import re
import time

import pytest
from harness import checker
from harness.factor import scaled
from harness.webhooks import SECRET, lag, make_webhook_sink, new_secret, paused, state_is, write, write_while_paused
from harness.wait import eventually
from harness.workload import nothing_pending


@pytest.mark.matrix
def test_a_committed_event_reaches_the_endpoint_signed_and_a_rolled_back_one_does_not(db, hooks):
    make_webhook_sink(db, hooks)
    with db.connect(autocommit=False) as c:
        first = c.execute("SELECT outbox.add_event('pay-1', 'authorized', '{\"amount\": 5}', aggregate_type => 'payment')").fetchone()[0]
        c.commit()
        c.execute("SELECT outbox.add_event('pay-1', 'captured', '{}')")
        c.rollback()
        c.execute("SELECT outbox.add_event('pay-1', 'refunded', NULL)")
        c.commit()
    one, two = hooks.wait_for(2)
    nothing_pending(db)
    assert len(hooks.requests) == 2 and hooks.repeats == 0
    assert one.method == "POST" and one.path == "/" and one.verified
    assert one.id == str(first) == one.event["event_id"]
    assert list(one.event) == ["type", "timestamp", "event_id", "aggregate_type", "aggregate_id", "data"]
    assert (one.type, one.key, one.event["aggregate_type"]) == ("authorized", "pay-1", "payment")
    assert one.data == b'{"amount": 5}', "the payload byte for byte"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", one.event["timestamp"])
    assert (two.type, two.data) == ("refunded", None)
    eventually(lambda: lag(db) == ("idle", "", 0, 0), 10, lambda: f"idle: {lag(db)}")


def test_the_headers_are_those_of_standard_webhooks_and_no_others(db, hooks):
    make_webhook_sink(db, hooks)
    write(db, 1)
    request, = hooks.wait_for(1)
    names = [name.lower() for name, _ in request.headers]
    assert len(names) == len(set(names)), names
    assert set(names) <= {"host", "user-agent", "accept", "content-type", "content-length", "webhook-id", "webhook-timestamp", "webhook-signature"}
    assert request.header("content-type").split(";")[0] == "application/json"
    assert abs(int(request.header("webhook-timestamp")) - time.time()) < 60
    signed = f"{request.id}.{request.header('webhook-timestamp')}.".encode() + request.body
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    assert request.header("webhook-signature") == "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def test_each_attempt_has_the_same_id_and_body_and_a_signature_of_its_own(db, hooks):
    hooks.answer(503, times=2)
    make_webhook_sink(db, hooks)
    write(db, 1)
    hooks.wait_for(1)
    requests = hooks.of()
    assert len(requests) == 3 and len({r.id for r in requests}) == 1 and len({r.body for r in requests}) == 1
    assert all(r.verified for r in requests)
    times = [int(r.header("webhook-timestamp")) for r in requests]
    assert times == sorted(times)
    assert len({r.header("webhook-signature") for r in requests}) == len(set(times))


def test_two_secrets_sign_twice_and_either_of_them_is_enough(db, make_hooks):
    old, new = new_secret(24), new_secret(64)
    receivers = [make_hooks([secret]) for secret in (old, new)]
    for number, receiver in enumerate(receivers):
        make_webhook_sink(db, receiver, f"hooks{number}", mapping={"secret": f"{new} {old}"})
    write(db, 1)
    for receiver in receivers:
        request, = receiver.wait_for(1)
        assert len(request.header("webhook-signature").split()) == 2


def test_a_rotation_loses_nothing(db, make_hooks):
    """The order of README: the receiver takes both, the sender signs with both, then with the new one alone."""
    old, new = new_secret(), new_secret()
    receiver = make_hooks([old, new])
    make_webhook_sink(db, receiver, mapping={"secret": old})
    for number, secret in enumerate([f"{new} {old}", new]):
        write(db, 20)
        db.sql(f"ALTER USER MAPPING FOR CURRENT_USER SERVER hooks OPTIONS (SET secret '{secret}')")
        receiver.wait_for(20 * (number + 1))
    write(db, 1)
    assert len(receiver.wait_for(41)[-1].header("webhook-signature").split()) == 1
    assert all(r.verified for r in receiver.requests)


def test_a_wrong_secret_is_refused_and_the_right_one_heals_it(db, hooks):
    make_webhook_sink(db, hooks, mapping={"secret": new_secret()})
    write(db, 5)
    state_is(db, "backing_off")
    assert "401" in lag(db)[1] and lag(db)[2:] == (0, 0)
    assert not hooks.accepted and not any(r.verified for r in hooks.requests)
    db.sql(f"ALTER USER MAPPING FOR CURRENT_USER SERVER hooks OPTIONS (SET secret '{SECRET}')")
    hooks.wait_for(5)
    nothing_pending(db)
    assert lag(db)[2:] == (0, 0)


def test_bytes_json_and_names_that_json_escapes_come_as_they_were(db, hooks):
    make_webhook_sink(db, hooks)
    key, payload = 'a"b\\c\n"data": ü', r'{"a":"x\u0000y", "n": 12345678901234567890.0}'
    db.sql("SELECT outbox.add_event(%s, 'written', %s)", [key, payload])
    db.sql("SELECT outbox.add_event(%s, 'written', '\\x00ff'::bytea)", [key])
    db.sql("SELECT outbox.add_event(NULL, 'written', 'null')")
    one, two, three = sorted(hooks.wait_for(3), key=lambda r: r.event["timestamp"])
    assert one.key == key and one.data == payload.encode()
    assert two.event["data_base64"] == base64.b64encode(b"\x00\xff").decode() and "data" not in two.event
    assert three.key is None and three.event["data"] is None


def test_cloudevents_as_headers_and_as_a_document(db, make_hooks):
    binary, structured = make_hooks(), make_hooks()
    make_webhook_sink(db, binary, "ce_binary", format="cloudevents", source="/shop")
    make_webhook_sink(db, structured, "ce_structured", format="cloudevents_structured", source="/shop")
    event_id = str(db.value("SELECT outbox.add_event('pay-1', 'captured', '{\"amount\": 5}', aggregate_type => 'payment')"))
    one, = binary.wait_for(1)
    assert one.body == b'{"amount": 5}' and one.verified and one.id == event_id
    assert (one.header("ce-specversion"), one.header("ce-id"), one.header("ce-source")) == ("1.0", event_id, "/shop")
    assert one.header("ce-type").endswith("captured") and one.header("ce-subject") == "pay-1" and one.header("ce-time").endswith("Z")
    assert one.header("content-type") == "application/json"
    two, = structured.wait_for(1)
    assert two.header("content-type").split(";")[0] == "application/cloudevents+json" and two.verified
    assert (two.event["specversion"], two.event["id"], two.event["source"], two.event["data"]) == ("1.0", event_id, "/shop", {"amount": 5})


def test_static_headers_idempotency_key_and_a_bearer_token(db, hooks):
    make_webhook_sink(db, hooks, headers='{"X-Tenant": "a, b", "User-Agent": "shop/1"}', idempotency_key="true",
                      mapping={"secret": SECRET, "bearer_token": "to.ken"})
    write(db, 1)
    request, = hooks.wait_for(1)
    assert (request.header("x-tenant"), request.header("user-agent")) == ("a, b", "shop/1")
    assert request.header("idempotency-key").strip('"') == request.id
    assert request.header("authorization") == "Bearer to.ken"


def test_user_name_and_password(db, hooks):
    make_webhook_sink(db, hooks, mapping={"secret": SECRET, "username": "relay", "password": "ope:n sésame"})
    write(db, 1)
    request, = hooks.wait_for(1)
    assert base64.b64decode(request.header("authorization").removeprefix("Basic ")).decode() == "relay:ope:n sésame"


def test_connections_are_kept_and_as_many_requests_are_out_as_were_asked_for(db, hooks):
    hooks.default.delay = 0.02
    make_webhook_sink(db, hooks, concurrency=4)
    write(db, 200, keys=50)
    hooks.wait_for(200)
    assert hooks.most_in_flight == 4
    assert hooks.connections <= 8, hooks.connections
    assert not hooks.overlapping()


def test_a_key_waits_for_its_own_events_alone(db, hooks):
    """In one batch: the next one waits for it."""
    hooks.answer(delay=5.0, key="slow-0", times=1)
    make_webhook_sink(db, hooks, batch_size=1000, stall_timeout="10s")
    db.sql("SELECT outbox.pause('hooks')")
    write(db, 3, keys=1, prefix="slow-")
    write(db, 100)
    db.sql("SELECT outbox.resume('hooks')")
    eventually(lambda: len([r for r in hooks.accepted.values() if r.key != "slow-0"]) == 100, 20, "the others")
    assert not [r for r in hooks.accepted.values() if r.key == "slow-0"], "nobody waited for the slow one"
    hooks.wait_for(103)
    events = checker.committed(db)
    checker.check(events, hooks.records()).must_hold(repeats=0)
    assert not hooks.overlapping()


def test_test_sink_sends_one_signed_event_and_says_what_came_back(db, hooks):
    hooks.answer(202, body=b"thank you")
    make_webhook_sink(db, hooks)
    rows = db.sql("SELECT * FROM outbox.test_sink('hooks')")
    assert all(ok for _, ok, _ in rows), rows
    request, = hooks.requests
    assert request.verified and "202" in str(rows)
    hooks.answer(500, body=b"not today")
    rows = db.sql("SELECT * FROM outbox.test_sink('hooks')")
    assert any(not ok and "500" in detail for _, ok, detail in rows), rows
    assert "not today" in str(rows)
    hooks.stop()
    assert not all(ok for _, ok, _ in db.sql("SELECT * FROM outbox.test_sink('hooks')"))


def test_a_rate_limit_holds(db, hooks):
    make_webhook_sink(db, hooks, rate_limit=20)
    begin = time.monotonic()
    write(db, scaled(60))
    hooks.wait_for(scaled(60))
    took = time.monotonic() - begin
    assert took > scaled(60) / 20 * 0.6, f"{scaled(60)} events within {took:.1f} s"
    ends = sorted(r.at for r in hooks.requests)
    for a, b in zip(ends, ends[40:], strict=False):
        assert b - a > 0.9, "forty within a second"


@pytest.mark.matrix
def test_events_that_wait_together_go_together_where_the_sink_has_it_so(db, hooks):
    make_webhook_sink(db, hooks, batch=10)
    write_while_paused(db, 25, keys=3)
    nothing_pending(db)
    checker.check(checker.committed(db), hooks.records()).must_hold(repeats=0)
    assert sorted(len(r.events) for r in hooks.requests) == [5, 10, 10]
    assert all(isinstance(r.event, list) and r.header("content-type") == "application/json" for r in hooks.requests)
    ids = {r.id for r in hooks.requests}
    assert len(ids) == 3 and ids.isdisjoint(e["event_id"] for r in hooks.requests for e in r.events)
    assert db.value("SELECT requests FROM outbox.progress ORDER BY batch DESC LIMIT 1") is None
    # Headers have no other place than beside the payload.
    with paused(db):
        db.sql("SELECT outbox.add_event('k', 'traced', %s, headers => '{\"traceparent\": \"00-1\"}'), outbox.add_event('k', 'plain', NULL)", ['{"a":  1}'])
    nothing_pending(db)
    checker.check(checker.committed(db), hooks.records()).must_hold(repeats=0)
    traced, plain = hooks.requests[-1].events
    assert traced["headers"] == {"traceparent": "00-1"} and traced["data"] == {"a": 1} and list(traced)[-2:] == ["data", "headers"]
    assert plain["data"] is None and "headers" not in plain
