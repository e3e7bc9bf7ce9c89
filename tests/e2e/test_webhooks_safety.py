"""A sink reaches what it may reach, and nothing else; and its secrets are its own."""
import base64

import psycopg
import pytest
from harness.wait import eventually, never
from harness.webhooks import SECRET, literal, make_webhook_sink, state_is, write
from harness.workload import nothing_pending

PG_CONF = {"max_worker_processes": 40}


REFUSED = ["127.0.0.1", "127.8.9.10", "[::1]", "0.0.0.0", "[::]", "169.254.169.254", "10.1", "172.16.1", "192.168.257", "100.64.0.1",
           "[::ffff:a00:1]", "[::ffff:127.0.0.1]", "[fe80::1]", "[fd00::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "224.0.0.1", "255.255.255.255", "localhost",
           "2130706433", "0x7f.1", "127.1", "017700000001"]


def test_an_address_that_is_not_global_is_refused(db):
    """Names and unusual spellings are judged by the address that they lead to."""
    for number, host in enumerate(REFUSED):
        make_webhook_sink(db, f"https://{host}:9/", f"s{number}", allow_private=None)
    write(db, 1)

    def wrong():
        return [(REFUSED[int(sink[1:])], *row) for sink, *row in db.sql("SELECT sink, state, last_error, parked, dead FROM outbox.lag")
                if row[0] != "backing_off" or "allow_private" not in (row[1] or "") or row[2:] != [0, 0]]
    eventually(lambda: not wrong(), 30, lambda: f"each of them is refused: {wrong()}")
    for number in range(0, len(REFUSED), 6):
        rows = db.sql(f"SELECT * FROM outbox.test_sink('s{number}')")
        assert not all(ok for _, ok, _ in rows) and "allow_private" in str(rows), (REFUSED[number], rows)


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_nothing_comes_to_a_server_here(db, make_hooks, authority, name):
    hooks = make_hooks(tls=authority.server(), name=name)
    make_webhook_sink(db, hooks, ca_certificate=authority.pem, allow_private=None)
    write(db, 1)
    state_is(db, "backing_off")
    never(lambda: hooks.connections, 1.0, "a connection")
    db.sql("SELECT * FROM outbox.test_sink('hooks')")
    assert hooks.connections == 0
    db.sql("ALTER SERVER hooks OPTIONS (ADD allow_private 'true')")
    hooks.wait_for(1)


@pytest.mark.parametrize("url", ["http://example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "example.com", "https://", "https:///x",
                                 "https://" + "user:pass@example.com/", "https://example.com/\r\nX: y", "https://example.com:99999/", "dict://127.0.0.1:1/", ""])
def test_a_url_that_is_none_of_ours_is_refused_by_the_ddl(db, url):
    with pytest.raises(psycopg.Error, match="url"):
        db.sql(f"CREATE SERVER hooks FOREIGN DATA WRAPPER outbox_http OPTIONS (url {literal(url)})")


def test_http_wants_to_be_allowed(db, hooks):
    with pytest.raises(psycopg.Error, match="allow_http"):
        make_webhook_sink(db, hooks, allow_http=None)
    make_webhook_sink(db, hooks)
    with pytest.raises(psycopg.Error, match="allow_http"):
        db.sql("ALTER SERVER hooks OPTIONS (DROP allow_http)")
    write(db, 1)
    hooks.wait_for(1)


@pytest.mark.parametrize("headers", ['{"Host": "x"}', '{"Content-Length": "1"}', '{"webhook-id": "1"}', '{"Transfer-Encoding": "chunked"}', '{"X": "a\\r\\nY: b"}',
                                     '{"X Y": "a"}', '{"X": 1}', "[]", "{", '{"Authorization": "Bearer x"}', '{"X": "ü"}'])
def test_headers_that_break_a_request_are_refused_by_the_ddl(db, headers):
    with pytest.raises(psycopg.Error, match="headers"):
        db.sql(f"CREATE SERVER hooks FOREIGN DATA WRAPPER outbox_http OPTIONS (url 'https://example.com/', headers {literal(headers)})")


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_dG9vIHNob3J0", "not base64", "whsec_" + "A" * 200, "whsec_" + "QUJDRA" * 8 + " nonsense"])
def test_a_secret_that_is_none_is_refused_and_not_repeated(db, secret):
    db.sql("CREATE SERVER hooks FOREIGN DATA WRAPPER outbox_http OPTIONS (url 'https://example.com/')")
    with pytest.raises(psycopg.Error, match="secret") as error:
        db.sql(f"CREATE USER MAPPING FOR CURRENT_USER SERVER hooks OPTIONS (secret {literal(secret)})")
    diag = error.value.diag
    assert len(secret) < 8 or not any(secret in (text or "") for text in (diag.message_primary, diag.message_detail, diag.message_hint))


@pytest.mark.parametrize("option", ["secret", "bearer_token", "password", "client_key"])
def test_a_secret_belongs_in_the_user_mapping(db, option):
    with pytest.raises(psycopg.Error, match=option) as error:
        db.sql(f"CREATE SERVER hooks FOREIGN DATA WRAPPER outbox_http OPTIONS (url 'https://example.com/', {option} '{SECRET}')")
    assert "mapping" in (error.value.diag.message_hint or "") + error.value.diag.message_primary


def test_secrets_are_nowhere_to_be_seen(make_pg, make_hooks):
    """Whatever goes wrong. Only the mapping itself has them, for superusers and its owner."""
    pg = make_pg(conf={"log_statement": "none", "log_min_error_statement": "panic", "log_min_messages": "debug2"})
    pg.sql("CREATE EXTENSION outbox; CREATE ROLE looker LOGIN; SELECT outbox.grant_monitor('looker')")
    hooks = make_hooks()
    token, password = "to.ken.of.nobody", "open-sesame"
    make_webhook_sink(pg, hooks, mapping={"secret": SECRET, "username": "relay", "password": password})
    make_webhook_sink(pg, hooks, "tokens", mapping={"secret": SECRET, "bearer_token": token})
    words = [SECRET, SECRET.removeprefix("whsec_"), token, password]
    seen = []
    for trouble in [{}, {"status": 500}, {"status": 422}, {"status": 401}, {"how": "reset"}]:
        if trouble:
            hooks.answer(**trouble, body=b"no")
        write(pg, 3, keys=3)
        eventually(lambda: pg.value("SELECT count(*) FROM outbox.lag WHERE last_error IS NOT NULL OR pending = 0") == 2, 30, "something comes of it")
        seen += [str(pg.sql(f"SELECT * FROM outbox.test_sink('{name}')")) for name in ("hooks", "tokens")]
        for view in ("lag", "relays", "health", "parked", "pending", "sinks", "discarded"):
            seen.append(str(pg.sql(f"SELECT * FROM outbox.{view}")))
        seen.append(str(pg.sql("SELECT * FROM pg_foreign_server")) + str(pg.sql("SELECT * FROM pg_stat_activity WHERE pid <> pg_backend_pid()")))
        seen += [open(f"/proc/{pid}/cmdline").read() for pid, in pg.sql("SELECT pid FROM outbox.relays WHERE pid IS NOT NULL")]
        seen.append(str(pg.sql("SELECT * FROM pg_user_mappings", user="looker")))
        hooks.heal()
        pg.sql("SELECT outbox.redrive('hooks', event_id) FROM outbox.parked WHERE sink = 'hooks' AND reason <> 'behind'")
        pg.sql("SELECT outbox.redrive('tokens', event_id) FROM outbox.parked WHERE sink = 'tokens' AND reason <> 'behind'")
        nothing_pending(pg)
    seen.append(pg.log())
    for word in words:
        assert not any(word in text for text in seen), f"{word} in {next(t for t in seen if word in t)[:3000]}"
    assert SECRET in str(pg.sql("SELECT * FROM pg_user_mappings"))


def test_an_endpoint_that_repeats_what_it_was_sent_tells_no_secret(db, hooks):
    decide = hooks.decide

    def echo(request):
        answer = decide(request)
        return type(answer)(422, body="; ".join(f"{k}: {v}" for k, v in request.headers if k.lower() in ("authorization", "webhook-signature")).encode())
    hooks.decide = echo
    make_webhook_sink(db, hooks, "tokens", mapping={"secret": SECRET, "bearer_token": "to.ken.of.nobody"})
    make_webhook_sink(db, hooks, "passwords", mapping={"secret": SECRET, "username": "relay", "password": "open-sesame"})
    write(db, 1)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 2, 20, "they are parked")
    seen = str(db.sql("SELECT sink, last_error FROM outbox.parked")) + "".join(str(db.sql(f"SELECT * FROM outbox.test_sink('{s}')")) for s in ("tokens", "passwords"))
    for word in ("to.ken.of.nobody", "open-sesame", base64.b64encode(b"relay:open-sesame").decode()):
        assert word not in seen, seen


def test_neither_proxies_nor_netrc_of_the_servers_environment_count(make_pg, make_hooks):
    pg = make_pg(start=False)
    home = pg.dir / "home"
    home.mkdir()
    (home / ".netrc").write_text("machine 127.0.0.1 login somebody password else\ndefault login somebody password else\n")
    variables = [f"{name}=http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")]
    pg.start(wrapper=["env", f"HOME={pg.inner(home)}", *variables])
    pg.sql("CREATE EXTENSION outbox")
    hooks = make_hooks()
    make_webhook_sink(pg, hooks)
    pg.sql("SELECT outbox.add_event('k', 'written', to_json(repeat('x', 500000)))")
    request, = hooks.wait_for(1)
    assert request.header("authorization") is None
    assert request.header("expect") is None and len(request.body) > 500000
    assert all(ok for _, ok, _ in pg.sql("SELECT * FROM outbox.test_sink('hooks')"))


def test_who_may_not_use_the_wrapper_makes_no_sink(db):
    role = f"nobody_{db.name}"
    db.sql(f"CREATE ROLE {role} LOGIN")
    try:
        with db.connect(user=role) as c, pytest.raises(psycopg.errors.InsufficientPrivilege):
            c.execute("CREATE SERVER hooks FOREIGN DATA WRAPPER outbox_http OPTIONS (url 'https://example.com/')")
    finally:
        db.sql(f"DROP ROLE {role}")
