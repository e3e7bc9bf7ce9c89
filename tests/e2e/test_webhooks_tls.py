"""TLS: who is not who it should be gets nothing, and is named; client certificates; HTTP/2."""
import ssl

import pytest
import trustme
from harness import checker
from harness.wait import eventually, never
from harness.webhooks import SECRET, Authority, lag, make_webhook_sink, state_is, write
from harness.workload import nothing_pending


def refused(db, hooks, *words):
    """An outage that says why, and no request has come."""
    write(db, 5)
    state_is(db, "backing_off")
    assert any(word in lag(db)[1].lower() for word in words), lag(db)
    assert lag(db)[2:] == (0, 0) and not hooks.requests


def test_a_certificate_of_an_authority_that_is_given(db, make_hooks, authority):
    hooks = make_hooks(tls=authority.server())
    make_webhook_sink(db, hooks, ca_certificate=authority.pem)
    write(db, 50)
    nothing_pending(db)
    assert len(hooks.accepted) == 50 and hooks.connections <= 8
    rows = db.sql("SELECT * FROM outbox.test_sink('hooks')")
    assert all(ok for _, ok, _ in rows), rows


def test_an_authority_that_nobody_knows_and_then_it_is_named(db, make_hooks, authority):
    hooks = make_hooks(tls=authority.server())
    make_webhook_sink(db, hooks)
    refused(db, hooks, "certificate")
    assert [row[:2] for row in db.sql("SELECT * FROM outbox.test_sink('hooks')")] == [("reachable", True), ("TLS", False)]
    db.sql(f"ALTER SERVER hooks OPTIONS (ADD ca_certificate '{authority.pem}')")
    nothing_pending(db)
    checker.check(checker.committed(db), hooks.records()).must_hold(repeats=0)


def test_a_certificate_for_another_name(db, make_hooks, authority):
    hooks = make_hooks(tls=authority.server("billing.example"))
    make_webhook_sink(db, hooks, ca_certificate=authority.pem)
    refused(db, hooks, "certificate", "subject name", "host name")


def test_a_certificate_that_signs_itself(db, make_hooks, tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other = Authority()
    other._ca.issue_cert("localhost").configure_cert(context)
    hooks = make_hooks(tls=context)
    make_webhook_sink(db, hooks, ca_certificate=trustme.CA().cert_pem.bytes().decode())
    refused(db, hooks, "certificate")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_tls_is_refused(db, make_hooks, authority):
    context = authority.server()
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    hooks = make_hooks(tls=context)
    make_webhook_sink(db, hooks, ca_certificate=authority.pem)
    refused(db, hooks, "ssl", "tls", "protocol", "handshake")


def test_a_server_that_speaks_no_tls(db, hooks):
    make_webhook_sink(db, hooks.url.replace("http:", "https:"))
    refused(db, hooks, "ssl", "tls", "wrong version")


def test_a_client_certificate(db, make_hooks, authority):
    clients = Authority()
    hooks = make_hooks(tls=authority.server(client=clients))
    make_webhook_sink(db, hooks, ca_certificate=authority.pem)
    refused(db, hooks, "certificate", "alert", "empty reply", "reset")  # with TLS 1.3 the server says so after it is connected
    certificate, key = clients.client("relay@outbox.example")
    with pytest.raises(Exception, match="client_key"):
        db.sql(f"ALTER SERVER hooks OPTIONS (ADD client_key '{key}')")
    db.sql(f"ALTER USER MAPPING FOR CURRENT_USER SERVER hooks OPTIONS (ADD client_certificate '{certificate}', ADD client_key '{key}')")
    nothing_pending(db)
    assert len(hooks.accepted) == 5
    assert ("email", "relay@outbox.example") in hooks.requests[0].certificate["subjectAltName"]
    rows = db.sql("SELECT * FROM outbox.test_sink('hooks')")
    assert all(ok for _, ok, _ in rows), rows
    # Of another authority.
    certificate, key = Authority().client()
    db.sql(f"ALTER USER MAPPING FOR CURRENT_USER SERVER hooks OPTIONS (SET client_certificate '{certificate}', SET client_key '{key}')")
    taken = len(hooks.accepted)
    write(db, 1)
    state_is(db, "backing_off")
    never(lambda: len(hooks.accepted) > taken, 0.5, "it is taken")
    assert "BEGIN" not in lag(db)[1]


def test_http2_where_it_is_offered(db, make_hooks, authority):
    hooks = make_hooks(tls=authority.server(), http2=True)
    hooks.default.delay = 0.02
    make_webhook_sink(db, hooks, ca_certificate=authority.pem, concurrency=8)
    write(db, 200, keys=50)
    nothing_pending(db)
    assert {r.protocol for r in hooks.requests} == {"HTTP/2"}
    assert hooks.most_in_flight == 8 and not hooks.overlapping()
    assert hooks.connections <= 8
    checker.check(checker.committed(db), hooks.records()).must_hold(repeats=0)
    hooks.answer(503, times=1)
    write(db, 5)
    nothing_pending(db)
    hooks.drop()
    write(db, 5)
    nothing_pending(db)
    checker.check(checker.committed(db), hooks.records()).must_hold(repeats=8)


def test_the_secret_of_the_mapping_is_the_owners(db, hooks):
    """Somebody else's mapping is nobody's."""
    make_webhook_sink(db, hooks, mapping={"secret": SECRET})
    write(db, 1)
    hooks.wait_for(1)
    db.sql("DROP USER MAPPING FOR CURRENT_USER SERVER hooks")
    write(db, 1)
    eventually(lambda: lag(db)[0] in ("backing_off", "disabled"), 20, lambda: f"without a secret: {lag(db)}")
    assert len(hooks.accepted) == 1
