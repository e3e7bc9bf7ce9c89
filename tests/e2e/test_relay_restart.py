"""A relay that ends is started again, and no default of the cluster breaks it."""
import pytest
from harness.wait import eventually
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
