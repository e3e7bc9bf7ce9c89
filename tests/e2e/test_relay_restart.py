"""A relay that ends is started again, and no default of the cluster breaks it."""
import pytest
from harness.factor import scaled
from harness.wait import eventually, never
from harness.workload import make_sink, relays


def test_a_relay_that_has_published_is_back_at_once_however_often_it_is_terminated(db, kafka, topic):
    """B50."""
    make_sink(db, kafka, topic)
    for number in range(5):
        pid = eventually(lambda: relays(db), 3, "a relay")[0]
        db.sql("SELECT outbox.add_event('k', 'changed', '{}')")
        kafka.consume(topic, until=number + 1)
        eventually(lambda: db.value("SELECT count(*) FROM outbox.pending") == 0, 10, "nothing pending")
        db.sql("SELECT pg_terminate_backend(%s, 5000)", [pid])


@pytest.mark.matrix
def test_no_default_of_the_cluster_or_the_database_stops_a_relay(db, kafka, topic):
    hostile = {"default_transaction_read_only": "on", "default_transaction_isolation": "serializable", "statement_timeout": "1ms",
               "lock_timeout": "1ms", "idle_in_transaction_session_timeout": "1ms", "idle_session_timeout": "1ms", "row_security": "off",
               "search_path": "nowhere", "session_replication_role": "replica", "datestyle": "SQL, DMY", "timezone": "Asia/Kathmandu",
               "extra_float_digits": "-15", "bytea_output": "escape", "standard_conforming_strings": "off", "enable_indexscan": "off"}
    if db.pg.version >= 17:
        hostile["transaction_timeout"] = "1ms"
    make_sink(db, kafka, topic)
    for name, value in hostile.items():
        db.pg.sql(f"ALTER DATABASE \"{db.name}\" SET {name} = '{value}'")
    pid, = eventually(lambda: relays(db.pg, db.name), 30, "a relay")
    db.pg.sql("SELECT pg_terminate_backend(%s)", [pid])
    eventually(lambda: pid not in relays(db.pg, db.name), 10, "it is gone")
    with db.connect(autocommit=False, options="-c statement_timeout=0 -c default_transaction_read_only=off -c idle_session_timeout=0"
                    " -c idle_in_transaction_session_timeout=0" + (" -c transaction_timeout=0" if db.pg.version >= 17 else "")) as c:
        c.execute("SELECT outbox.add_event('k', 'x', '{\"n\": 1}') FROM generate_series(1, 100)")
    assert len(kafka.consume(topic, until=100)) == 100
    assert "outbox kafka/0" in [r["application_name"] for r in db.pg.backends("backend_type = 'outbox relay'")]


def test_an_option_that_no_producer_can_be_made_with_is_named_once_and_heals_at_once(db, kafka, topic):
    """B57. The DDL cannot see it: librdkafka refuses it when a producer is made."""
    before = db.pg.mark()
    make_sink(db, kafka, topic, security_protocol="sasl_plaintext", sasl_mechanism="NO-SUCH")
    db.sql("SELECT outbox.add_event('k', 'x', '1')")
    eventually(lambda: "NO-SUCH" in (db.value("SELECT last_error FROM outbox.lag") or ""), 20, "it is named")
    never(lambda: db.value("SELECT state FROM outbox.lag") != "backing_off", scaled(2.0), "anything but backing off")
    lines = [line for line in db.pg.log_since(before).splitlines() if "outbox relay" in line]
    assert len(lines) <= 3, lines
    db.sql("ALTER SERVER kafka OPTIONS (SET security_protocol 'plaintext', DROP sasl_mechanism)")
    assert kafka.consume(topic, until=1, timeout=10)
    eventually(lambda: db.value("SELECT last_error FROM outbox.lag") is None, 10, "it is over")


def test_there_is_never_more_than_one_relay_for_a_lane_nor_one_launcher(make_db, pg, kafka, rng):
    """B61. Two databases at once; the launcher and relays are killed while somebody counts."""
    dbs = [make_db(extension=False) for _ in range(2)]
    for db in dbs:
        db.sql("CREATE EXTENSION outbox")
        make_sink(db, kafka, kafka.create_topic(), lanes=2)
    worst = {}

    def count():
        for who, number in pg.sql("""SELECT coalesce(datname || application_name, backend_type), count(*) FROM pg_stat_activity
                                     WHERE backend_type LIKE 'outbox %' AND application_name NOT IN ('', 'outbox') GROUP BY 1
                                     UNION ALL
                                     SELECT backend_type, count(*) FROM pg_stat_activity WHERE backend_type = 'outbox launcher' GROUP BY 1"""):
            worst[who] = max(worst.get(who, 0), number)
        return [pid for pid, in pg.sql("SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'outbox %'")]

    for _ in range(scaled(6)):
        pids = eventually(lambda: len(p := count()) >= 5 and p, 30, "the launcher and four relays")
        pg.sql("SELECT pg_terminate_backend(pid) FROM unnest(%s) pid", [rng.sample(pids, 3)])
        for _ in range(10):
            count()
    assert set(worst.values()) == {1} and len(worst) == 5, worst
