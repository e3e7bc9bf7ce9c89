"""What an operator sees while nothing is published, and what nobody may see."""
import os
import re
import signal
from pathlib import Path

import psycopg
import pytest
from harness.wait import eventually, never
from harness.workload import make_sink, nothing_pending, relays

PG_CONF = {"outbox.poll_interval": "100ms"}
ROW = """
    SELECT l.state, l.pending, extract(epoch FROM l.oldest_pending_age)::float, coalesce(l.last_error, ''), r.pid, v.last_beat_at
    FROM outbox.lag l JOIN outbox.relays r USING (sink) LEFT JOIN outbox.live_relays() v ON v.pid = r.pid"""


def monitor(db):
    """What a role sees that may monitor and nothing else."""
    db.sql("DO $$ BEGIN CREATE ROLE watcher; EXCEPTION WHEN duplicate_object THEN END $$; SELECT outbox.grant_monitor('watcher')")

    def look(query=ROW):
        with db.connect() as c:
            c.execute("SET ROLE watcher")
            return c.execute(query).fetchall()
    return look


def grows(look):
    """The oldest pending event's age grows while nothing is published."""
    first = eventually(lambda: (rows := look()) and rows[0][1] == 1 and rows, 20, "one event is pending")[0]
    return eventually(lambda: (rows := look()) and rows[0][2] > first[2] + 0.5 and rows, 20, "its age grows")[0], first


def test_without_the_library_the_age_grows_and_the_state_says_why(make_pg):
    """B83 a."""
    pg = make_pg(flavour="normal", conf={"shared_preload_libraries": ""})
    pg.sql("CREATE EXTENSION outbox")
    pg.sql("CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', topic 't')")
    pg.sql("SELECT outbox.add_event('k', 'x', '1')")
    age = "SELECT extract(epoch FROM oldest_pending_age) FROM outbox.lag"
    first = pg.value(age)
    eventually(lambda: pg.value(age) > first, 5, "the age grows")
    assert pg.value("SELECT state FROM outbox.lag") == "no_worker"
    assert "shared_preload_libraries" in pg.value("SELECT hint FROM outbox.health WHERE \"check\" = 'preload' AND NOT ok")


def test_a_relay_that_is_stopped_has_a_pid_and_no_heartbeat(db, kafka, topic):
    """B83 b."""
    make_sink(db, kafka, topic)
    db.sql("SELECT outbox.add_event('k', 'x', '0')")
    nothing_pending(db)
    look, (pid,) = monitor(db), relays(db)
    db.pg.signal(pid, signal.SIGSTOP)
    try:
        db.sql("SELECT outbox.add_event('k', 'x', '1')")
        last, first = grows(look)
        assert last[4] == pid and last[5] == first[5], "a pid whose heart stands still"
    finally:
        db.pg.signal(pid, signal.SIGCONT)
    nothing_pending(db)
    assert kafka.consume(topic, until=2)


@pytest.mark.long
def test_the_health_check_names_a_relay_without_a_heartbeat(db, kafka, topic):
    """B83 b. It is patient for a minute."""
    make_sink(db, kafka, topic)
    pid, = eventually(lambda: relays(db), 20, "a relay")
    db.pg.signal(pid, signal.SIGSTOP)
    try:
        check = "SELECT ok, hint FROM outbox.health WHERE \"check\" = 'sink kafka: heartbeat'"
        assert db.sql(check) == [(True, None)]
        eventually(lambda: db.sql(check)[0][0] is False, 90, "the check fails")
        assert "stopped or waits for a lock" in db.sql(check)[0][1]
    finally:
        db.pg.signal(pid, signal.SIGCONT)


def test_a_relay_that_waits_for_a_lock_is_seen_in_pg_locks(db, kafka, topic):
    """B83 c."""
    make_sink(db, kafka, topic)
    db.sql("SELECT outbox.add_event('k', 'x', '0')")
    nothing_pending(db)
    look, (pid,) = monitor(db), relays(db)
    with db.connect(autocommit=False) as c:
        c.execute("LOCK TABLE outbox.lanes IN EXCLUSIVE MODE")
        db.sql("SELECT outbox.add_event('k', 'x', '1')")
        eventually(lambda: db.value("SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted", [pid]) == 1, 20, "it waits")
        last, first = grows(look)
        assert last[4] == pid and last[5] == first[5], "a pid whose heart stands still"
    nothing_pending(db)


def test_a_broker_that_is_down_leaves_a_heartbeat_and_a_reason(db, mock):
    """B83 d."""
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", delivery_timeout="1s")
    mock.kill()
    db.sql("SELECT outbox.add_event('k', 'x', '1')")
    look = monitor(db)
    eventually(lambda: look()[0][0] == "backing_off", 20, "the outage is known")
    last, first = grows(look)
    assert last[4] and last[5] > first[5] and "refused" in last[3], f"a heart that beats, and the reason: {last}"
    check = look("SELECT ok, detail FROM outbox.health WHERE \"check\" = 'sink kafka'")
    assert check[0][0] is False and "refused" in check[0][1]


def error(db):
    return db.value("SELECT coalesce(last_error, '') FROM outbox.lag")


def test_what_was_wrong_with_an_event_names_it_its_topic_and_the_limit_and_goes_when_it_is_over(db, kafka, topic):
    """B86: unknown topic, oversize. The log has the event's id, the row attempts, time and reason; when it was delivered it is gone."""
    small, missing = kafka.create_topic(config={"max.message.bytes": "2000"}), f"{topic}-missing"
    make_sink(db, kafka, topic)
    mark = db.pg.mark()
    db.sql("SELECT outbox.add_event('a', 'x', '1', topic => %s)", [missing])
    db.sql("SELECT outbox.add_event('b', 'x', %s::jsonb, topic => %s)", ['"' + "x" * 3000 + '"', small])
    rows = eventually(lambda: len(found := db.sql("SELECT aggregate_id, id, reason, last_error, attempts, parked_at FROM outbox.parked ORDER BY id")) == 2
                      and found, 30, "both are parked")
    assert [row[2] for row in rows] == ["retry", "dead"] and all(row[4] >= 1 and row[5] for row in rows), rows
    assert missing in rows[0][3] and small in rows[1][3] and "2000" in rows[1][3], rows
    said = db.pg.log_since(mark)
    assert any(f"with id {row[1]}: {row[3]}" in said for row in rows), said
    assert not error(db), "the sink itself is well"
    kafka.create_topic(missing)
    kafka.alter_topic(small, {"max.message.bytes": "100000"})
    db.sql("SELECT outbox.redrive('kafka')")
    eventually(lambda: db.value("SELECT count(*) FROM outbox.parked") == 0, 60, "they go out")
    assert len(kafka.consume(missing, until=1)) == len(kafka.consume(small, until=1)) == 1


def test_what_is_wrong_with_a_sink_is_named_and_goes_when_it_is_over(db, mock):
    """B86: a name that nobody knows, a broker that does not answer in time; credentials and certificates are in test_outage.py."""
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", delivery_timeout="1s")
    nobody = "no-such-host.invalid:9092"
    db.sql(f"ALTER SERVER kafka OPTIONS (SET bootstrap_servers '{nobody}')")
    db.sql("SELECT outbox.add_event('k', 'x', '1')")
    eventually(lambda: "resolve" in error(db) and "no-such-host.invalid" in error(db), 30, lambda: f"the name: {error(db)}")
    assert db.value("SELECT last_error_at FROM outbox.lag") and db.value("SELECT count(*) FROM outbox.parked") == 0
    db.sql(f"ALTER SERVER kafka OPTIONS (SET bootstrap_servers '{mock.bootstrap}')")
    nothing_pending(db)
    eventually(lambda: not error(db), 20, "it is over")
    mock.freeze()
    try:
        db.sql("SELECT outbox.add_event('k', 'x', '2')")
        eventually(lambda: re.search("acknowledged|timed out|imed ?out", error(db)), 30, lambda: f"the time-out: {error(db)}")
    finally:
        mock.resume()
    nothing_pending(db)
    eventually(lambda: not error(db), 20, "it is over")


def test_a_relay_s_row_in_pg_stat_activity_says_what_it_is_at(db, mock):
    """B87."""
    mock.cmd("topic t 1")
    make_sink(db, mock, "t")
    db.sql("SELECT outbox.add_event('k', 'x', '0')")
    nothing_pending(db)

    def row():
        return db.sql("SELECT datname, backend_type, state, wait_event_type, wait_event, query, xact_start IS NULL, application_name"
                      " FROM pg_stat_activity WHERE backend_type = 'outbox relay' AND datname = current_database()")[0]
    eventually(lambda: row()[2] == "idle" and row()[4], 20, "it is idle, in a wait with a name")
    assert row()[0] == db.name and row()[6], "and in no transaction"
    assert row()[7] == "outbox kafka/0", row()
    mock.cmd("rtt -1 3000")
    db.sql("SELECT outbox.add_event('k', 'x', '1')")
    eventually(lambda: row()[2] == "active" and row()[5] == "publishing" and row()[3] and not row()[6], 20, "it publishes, and waits")


def test_secrets_are_in_nothing_that_we_write(db, make_kafka):
    """B81. What PostgreSQL itself logs of a DDL is in SECURITY.md; here the log has everything but statements."""
    broker = make_kafka(sasl={"relay": "open-sesame"})
    db.pg.configure(log_min_messages="debug5", log_min_error_statement="panic")
    db.pg.reload()
    try:
        eventually(lambda: db.pg.value("SHOW log_min_messages") == "debug5", 10, "the setting")
        before = db.pg.mark()
        db.sql(f"""CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka
                   OPTIONS (bootstrap_servers '{broker.sasl_bootstrap}', topic 't', delivery_timeout '1s',
                            security_protocol 'sasl_plaintext', sasl_mechanism 'PLAIN')""")
        db.sql("CREATE USER MAPPING FOR CURRENT_USER SERVER kafka OPTIONS (sasl_username 'relay', sasl_password 'wrong-sesame',"
               " ssl_key_password 'key-sesame')")
        db.sql("SELECT outbox.add_event('k', 'x', '1')")
        eventually(lambda: "uthentication" in (db.value("SELECT last_error FROM outbox.lag") or ""), 30, "it is refused")
        seen = str(db.sql("SELECT * FROM outbox.test_sink('kafka')"))
        for view in ("lag", "relays", "health", "parked", "pending", "discarded"):
            seen += str(db.sql(f"SELECT * FROM outbox.{view}"))
        seen += str(db.sql("SELECT * FROM pg_stat_activity WHERE pid <> pg_backend_pid()")) + str(db.sql("SELECT * FROM pg_settings"))
        for pid, in db.sql("SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'outbox%'"):
            seen += Path(f"/proc/{pid}/cmdline").read_text() + Path(f"/proc/{pid}/environ").read_text() if os.path.exists(f"/proc/{pid}") else ""
        with pytest.raises(psycopg.Error) as refused:
            db.sql("ALTER USER MAPPING FOR CURRENT_USER SERVER kafka OPTIONS (ADD no_such_password 'more-sesame')")
        assert "more-sesame" not in str(refused.value)
        assert "sesame" not in seen
        assert "wrong-sesame" not in db.pg.log_since(before) and "key-sesame" not in db.pg.log_since(before)
        assert len(db.pg.log_since(before)) > 10_000, "the log has something in it"
    finally:
        db.pg.configure(log_min_messages="info", log_min_error_statement="error")
        db.pg.reload()


def test_settings_act_where_they_say_and_a_bad_value_keeps_the_old_one(db):
    """B59."""
    settings = dict(db.sql("SELECT name, context FROM pg_settings WHERE name LIKE 'outbox.%'"))
    assert settings == {"outbox.publish": "sighup", "outbox.poll_interval": "sighup", "outbox.retention": "sighup",
                        "outbox.inbox_retention": "sighup", "outbox.replay_rate": "sighup",
                        "outbox.max_event_size": "superuser", "outbox.lock_keys": "user", "outbox.instance": "sighup",
                        "outbox.traceparent": "user", "outbox.tracestate": "user", "outbox.baggage": "user"}
    for name, context in settings.items():
        if context == "sighup":
            for statement in (f"SET {name} TO DEFAULT", f'ALTER DATABASE "{db.name}" SET {name} TO \'1s\''):
                with pytest.raises(psycopg.errors.CantChangeRuntimeParam):
                    db.sql(statement)
    before = db.pg.mark()
    db.pg.configure(outbox__poll_interval="nonsense", outbox__retention="2d")
    db.pg.reload()
    eventually(lambda: db.value("SHOW outbox.retention") == "2d", 10, "the good one")
    assert db.value("SHOW outbox.poll_interval") == "100ms"
    assert db.value("SELECT count(*) FROM pg_settings WHERE pending_restart AND name LIKE 'outbox.%'") == 0
    complaints = [line for line in db.pg.log_since(before).splitlines() if 'value for parameter "outbox.poll_interval"' in line]
    assert len(complaints) == 1, complaints
    never(lambda: relays(db), 0.5, "a relay without a sink")
    db.pg.configure(outbox__poll_interval="100ms", outbox__retention="7d")
    db.pg.reload()
