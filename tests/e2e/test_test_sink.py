"""outbox.test_sink says in words what is wrong, from a worker of its own."""
import psycopg
import pytest

from test_first_event import make_sink


def checks(db, sink="kafka"):
    return {name: (ok, detail) for name, ok, detail in db.sql(f"SELECT * FROM outbox.test_sink('{sink}')")}


def test_all_is_well_on_a_topic_that_is_there(db, kafka, topic):
    make_sink(db, kafka, topic)
    found = checks(db)
    assert found and all(ok for ok, _ in found.values()), found


def test_a_topic_that_is_missing_and_a_broker_that_is_down_are_named(db, kafka):
    make_sink(db, kafka, "no-such-topic")
    assert any(not ok and "no-such-topic" in name + detail for name, (ok, detail) in checks(db).items())
    db.sql("ALTER SERVER kafka OPTIONS (SET bootstrap_servers '127.0.0.1:1')")
    ok, detail = next(iter(checks(db).values()))
    assert not ok and detail


def test_a_sink_that_is_not_there_is_an_error(db):
    with pytest.raises(psycopg.errors.UndefinedObject, match="there is no sink"):
        checks(db, "nobody")
