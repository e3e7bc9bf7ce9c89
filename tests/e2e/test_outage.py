"""An outage is nobody's fault: nothing is parked, nothing is counted, no transaction is open, the reason is in the views, and it is
over by itself."""
import os
import time

from harness import checker, env
from harness.factor import scaled
from harness.wait import eventually, never
from harness.workload import make_sink, nothing_pending, relays

# Of relays, for one that has a transaction open or holds vacuum back.
OPEN = """
    SELECT pid, state, xact_start, backend_xmin FROM pg_stat_activity
    WHERE backend_type = 'outbox relay' AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL)
"""


def write(db, events):
    db.sql("SELECT outbox.add_event('key-' || g %% 20, 'written', g::text) FROM generate_series(1, %s) g", [events])


def lag(db):
    return db.sql("SELECT state, coalesce(last_error, ''), parked + dead FROM outbox.lag")[0]


def down(db):
    eventually(lambda: lag(db)[0] == "backing_off", 20, "the relay backs off")


def ours(lines):
    return [line for line in lines.splitlines() if "outbox" in line]


def test_a_long_outage_holds_nothing_open_counts_nothing_and_ends_by_itself(db, kafka, topic):
    """B17, B26."""
    make_sink(db, kafka, topic, lanes=2, delivery_timeout="1s")
    write(db, 100)
    nothing_pending(db)
    before = db.pg.mark()
    kafka.kill()
    write(db, 1000)
    down(db)
    eventually(lambda: db.value("SELECT count(*) FROM outbox.relays WHERE state = 'backing_off'") == 2, 20, "both lanes back off")

    state = db.connect()

    def wrong():
        sink = state.execute("SELECT state, last_error, last_error_at, parked, dead FROM outbox.lag").fetchone()
        lanes = state.execute("SELECT state, last_error FROM outbox.relays").fetchall()
        if sink[0] != "backing_off" or "refused" not in sink[1] or not sink[2] or sink[3:] != (0, 0):
            return sink
        if any(lane[0] != "backing_off" or "refused" not in lane[1] for lane in lanes):
            return lanes
        # A pass begins a transaction now and then, and ends it at once: held open is what is there twice in a row.
        first = set(state.execute(OPEN).fetchall())
        return first & set(state.execute(OPEN).fetchall())
    never(wrong, scaled(4.0), "the outage shows wrongly", interval=0.1)
    assert state.execute("SELECT count(*) FROM outbox.parked").fetchone() == (0,)

    kafka.start()
    up = time.monotonic()
    nothing_pending(db, 20)
    took = time.monotonic() - up
    assert took < 4, f"the events came {took:.1f} s after the broker"
    eventually(lambda: lag(db)[:2] == ("idle", ""), 10, "the error is over")
    events = checker.committed(db)
    checker.check(events, kafka.consume(topic, until=checker.has_all(events))).must_hold(repeats=0)
    # Down and up again, by one of the lanes for both; the rest would be a flood.
    lines = ours(db.pg.log_since(before))
    assert 2 <= len(lines) <= 4, "\n".join(lines)
    state.close()


def test_a_probe_that_is_acknowledged_while_the_sink_is_altered_ends_the_outage(db, mock):
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", delivery_timeout="1s")
    for _ in range(scaled(2)):
        mock.cmd("down -1")
        write(db, 100)
        down(db)
        mock.cmd("rtt -1 120")  # the probe is on its way for a while
        mock.cmd("up -1")
        for _ in range(100):  # many more than it takes, unless the first of them breaks it
            db.sql("ALTER SERVER kafka OPTIONS (SET delivery_timeout '1s')")
            if lag(db)[0] != "backing_off":
                break
            time.sleep(0.05)
        mock.cmd("rtt -1 0")
        nothing_pending(db, 20)


def test_vacuum_goes_on_elsewhere_during_an_outage(db, mock):
    """B66."""
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", delivery_timeout="1s")
    mock.kill()
    write(db, 10)
    down(db)
    db.sql("CREATE TABLE business AS SELECT g FROM generate_series(1, 100) g")
    db.sql("DELETE FROM business")

    def vacuumed():
        notices = []
        with db.connect() as c:
            c.add_notice_handler(lambda n: notices.append(n.message_primary + (n.message_detail or "")))
            c.execute("VACUUM (VERBOSE) business")
        return any("tuples: 100 removed" in n for n in notices)
    eventually(vacuumed, 10, "VACUUM removes what was deleted during the outage", interval=0.3)


def test_addresses_where_nobody_is_do_not_flood_the_log(db):
    """B34."""
    before = db.pg.mark()
    db.sql("""CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka
              OPTIONS (bootstrap_servers '127.0.0.1:1,127.0.0.1:2,[::1]:3', topic 't', delivery_timeout '1s')""")
    write(db, 10)
    down(db)
    never(lambda: lag(db)[0] != "backing_off", scaled(5.0), "anything but an outage", interval=0.2)
    lines = ours(db.pg.log_since(before))
    assert 1 <= len(lines) <= 3 and all("refused" in line or "unreachable" in line for line in lines), "\n".join(lines)


def test_a_wrong_password_is_named_and_the_right_one_heals_it(db, make_kafka):
    """B30."""
    broker = make_kafka(sasl={"relay": "open-sesame"})
    topic = broker.create_topic()
    broker.allow("relay", topic)
    db.sql(f"""CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka
               OPTIONS (bootstrap_servers '{broker.sasl_bootstrap}', topic '{topic}', format 'payload', delivery_timeout '2s',
                        security_protocol 'sasl_plaintext', sasl_mechanism 'PLAIN')""")
    db.sql("""CREATE USER MAPPING FOR CURRENT_USER SERVER kafka
              OPTIONS (sasl_username 'relay', sasl_password 'wrong-sesame')""")
    before = db.pg.mark()
    write(db, 100)
    eventually(lambda: "uthentication" in lag(db)[1], 30, lambda: f"the failed authentication in {lag(db)}")
    down(db)
    never(lambda: "uthentication" not in lag(db)[1], scaled(2.0), lambda: f"the reason goes away: {lag(db)}", interval=0.1)
    assert lag(db)[2] == 0
    db.sql("ALTER USER MAPPING FOR CURRENT_USER SERVER kafka OPTIONS (SET sasl_password 'open-sesame')")
    changed = time.monotonic()
    nothing_pending(db, 30)
    assert time.monotonic() - changed < 5
    events = checker.committed(db)
    checker.check(events, broker.consume(topic, until=checker.has_all(events))).must_hold(repeats=0)
    log = db.pg.log_since(before)
    assert "sesame" not in log and 1 <= len(ours(log)) <= 6, log


def test_a_certificate_for_another_name_is_named_and_the_right_name_heals_it(make_pg, make_kafka):
    """B30, B107: the server itself speaks TLS too, by the same library."""
    broker = make_kafka(tls="localhost")
    topic = broker.create_topic()
    db = make_pg(start=False)
    for name, source in {"server.crt": broker.keystore, "server.key": broker.keystore, "ca.crt": broker.certificate}.items():
        copy = db.dir / name
        copy.write_text(source.read_text())
        copy.chmod(0o600)
        if env.IS_ROOT:
            os.chown(copy, *env.identity())
    db.configure(ssl="on", ssl_cert_file=db.inner(db.dir / "server.crt"), ssl_key_file=db.inner(db.dir / "server.key"))
    db.start()
    db.sql("CREATE EXTENSION outbox; CREATE EXTENSION pgcrypto")
    db.sql(f"""CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka
               OPTIONS (bootstrap_servers '127.0.0.1:{broker.tls_port}', topic '{topic}', format 'payload', delivery_timeout '2s',
                        security_protocol 'ssl', ssl_ca_location '{db.inner(db.dir / 'ca.crt')}')""")
    write(db, 10)
    eventually(lambda: "ertificate" in lag(db)[1], 30, lambda: f"the certificate in {lag(db)}")
    assert lag(db)[2] == 0
    db.sql(f"ALTER SERVER kafka OPTIONS (SET bootstrap_servers '{broker.tls_bootstrap}')")
    for _ in range(scaled(20)):
        with db.connect(sslmode="require") as c:
            assert c.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()[0]
            assert c.execute("SELECT length(digest('x', 'sha256'))").fetchone()[0] == 32
            c.execute("SELECT outbox.add_event('key-1', 'written', '1')")
    nothing_pending(db, 30)
    events = checker.committed(db)
    checker.check(events, broker.consume(topic, until=checker.has_all(events))).must_hold(repeats=0)


def patient_sink(db, mock):
    """It has sent something, and counts as down after ten minutes."""
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", delivery_timeout="10min")
    write(db, 10)
    nothing_pending(db)


def test_before_a_sink_counts_as_down_the_views_say_what_is_wrong_and_other_options_end_the_wait(db, mock):
    patient_sink(db, mock)
    db.sql("ALTER SERVER kafka OPTIONS (SET bootstrap_servers '127.0.0.1:1')")
    write(db, 10)
    eventually(lambda: "refused" in lag(db)[1], 20, lambda: f"the reason: {lag(db)}")
    assert lag(db)[0] == "running" and db.value("SELECT NOT ok FROM outbox.health WHERE \"check\" = 'sink kafka'")
    since = db.value("SELECT last_beat_at FROM outbox.live_relays()")
    eventually(lambda: db.value("SELECT last_beat_at > %s + interval '2 s' FROM outbox.live_relays()", [since]), 20, "it waits, and its heart beats")
    db.sql(f"ALTER SERVER kafka OPTIONS (SET bootstrap_servers '{mock.bootstrap}')")
    nothing_pending(db, 20)
    eventually(lambda: lag(db) == ("idle", "", 0), 10, lambda: f"nothing is wrong any more: {lag(db)}")
    events = checker.committed(db)
    checker.check(events, mock.consume("t", until=checker.has_all(events))).must_hold(repeats=0)


def test_before_a_sink_counts_as_down_a_replay_says_what_is_wrong_and_a_dropped_sink_ends_the_wait(db, mock):
    patient_sink(db, mock)
    mock.cmd("down -1")
    db.sql("SELECT outbox.replay('kafka', NULL)")
    replay = lambda: db.sql("SELECT state, coalesce(last_error, ''), sent FROM outbox.replays")[0]
    eventually(lambda: "refused" in replay()[1], 20, lambda: f"the reason: {replay()}")
    mock.cmd("up -1")
    eventually(lambda: replay() == ("done", "", 10), 30, lambda: f"it goes on: {replay()}")
    mock.cmd("down -1")
    write(db, 10)
    eventually(lambda: "refused" in lag(db)[1], 20, lambda: f"the reason: {lag(db)}")
    db.sql("DROP SERVER kafka CASCADE")
    eventually(lambda: relays(db) == [], 10, "its relay is gone")


def test_a_relay_that_is_terminated_in_an_outage_leaves_no_error_behind(db, mock):
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", delivery_timeout="3s")
    write(db, 10)
    nothing_pending(db)
    mock.cmd("down 1")
    write(db, 10)
    down(db)
    old = relays(db)
    db.sql("SELECT pg_terminate_backend(%s)", old)
    eventually(lambda: relays(db) not in ([], old), 20, "another relay")
    mock.cmd("up 1")  # before this one has noticed
    nothing_pending(db)
    eventually(lambda: lag(db)[:2] == ("idle", ""), 10, lambda: f"nothing is wrong any more: {lag(db)}")


def test_a_relay_that_cannot_read_its_sink_backs_off_and_does_not_spin(db, kafka, topic):
    make_sink(db, kafka, topic)
    write(db, 1)
    nothing_pending(db)
    db.sql("ALTER TABLE outbox.sinks RENAME COLUMN floor TO bottom")
    db.pg.reload()
    eventually(lambda: "floor" in lag(db)[1], 20, lambda: f"it says what is wrong: {lag(db)}")
    write(db, 1)
    never(lambda: lag(db)[0] != "backing_off", scaled(5.0), "it backs off")
    db.sql("ALTER TABLE outbox.sinks RENAME COLUMN bottom TO floor")
    nothing_pending(db, timeout=40)
    failures = "SELECT errors_internal_total FROM outbox.metrics"
    eventually(lambda: db.value(failures) > 0, 20, "they are counted")
    assert db.value(failures) < scaled(30), "tried again and again at once"
