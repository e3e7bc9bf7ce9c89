"""The harness holds what it promises. These run on plain PostgreSQL, without the library."""

import os
import signal

import psycopg
import pytest

from harness import env
from harness.wait import eventually, never

PG_FLAVOUR = "plain"


@pytest.mark.matrix
def test_a_server_runs_as_another_user_and_answers(pg, pg_version):
    assert pg.value("SHOW server_version_num")[:2] == str(pg_version)
    assert pg.psql("SELECT 1; SELECT 2") == "1\n2"
    owner = os.stat(f"/proc/{pg.pid}").st_uid
    assert owner == env.identity()[0] and owner != 0


@pytest.mark.matrix
def test_a_server_restarts_on_its_port_with_its_data(pg):
    pg.sql("CREATE TABLE restart_me AS SELECT 42 AS x")
    port = pg.port
    pg.restart()
    pg.kill()
    pg.start()
    assert (pg.value("TABLE restart_me"), pg.port) == (42, port)


@pytest.mark.matrix
def test_a_crash_is_seen_and_can_be_expected(pg):
    with pg.connect() as victim:
        pg.signal(victim.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            eventually(lambda: victim.execute("SELECT 1") and None, 10)
    eventually(lambda: "reinitializing" in pg.log(), 10)
    pg.wait_recovered()
    with pytest.raises(AssertionError, match="terminated by signal"):
        pg.assert_no_crash()
    pg.expect_crash()
    pg.assert_no_crash()


def test_a_server_that_does_not_stop_is_a_failure(make_pg):
    pg = make_pg(flavour="plain")
    checkpointer = pg.backends("backend_type = 'checkpointer'")[0]["pid"]
    pg.signal(checkpointer, signal.SIGSTOP)
    with pytest.raises(AssertionError, match="took more than"):
        pg.stop(timeout=0.5)
    assert not env.alive(checkpointer)


def test_a_standby_follows_and_is_promoted(make_pg):
    pg = make_pg(flavour="plain")
    with pg.base_backup(standby=True) as standby:
        standby.start()
        pg.sql("CREATE TABLE t AS SELECT 1 AS x")
        eventually(lambda: standby.value("SELECT to_regclass('t')::text") == "t", 20)
        standby.promote()
        assert standby.value("SELECT pg_is_in_recovery()") is False


def test_a_database_is_new_and_goes_away(make_db, pg):
    db = make_db(extension=False)
    db.sql("CREATE TABLE t(x int)")
    assert db.value("SELECT count(*) FROM t") == 0
    assert "CREATE TABLE public.t" in db.dump()


def test_settings_can_be_changed(pg):
    pg.configure(work_mem="5MB", outbox__something="x")
    pg.reload()
    eventually(lambda: pg.value("SHOW work_mem") == "5MB", 10)
    assert pg.value("SHOW outbox.something") == "x"


def test_kafka_gives_records_in_order_with_key_and_headers(kafka):
    topic = kafka.create_topic(partitions=2)
    for i in range(3):
        kafka.produce(topic, f'{{"n":{i}}}', key="k", headers={"h": f"v{i}"})
    records = kafka.consume(topic, until=3)
    assert [r.json()["n"] for r in records] == [0, 1, 2]
    assert [r.header("h") for r in records] == ["v0", "v1", "v2"]
    assert {r.key for r in records} == {b"k"}
    assert sum(kafka.end_offsets(topic).values()) == 3
    assert len(kafka.consume(topic)) == 3
    with pytest.raises(AssertionError, match=r"records within .* wanted 4"):
        kafka.consume(topic, until=4, timeout=0.5)


def test_kafka_keeps_records_over_a_kill(kafka, topic):
    kafka.produce(topic, b"before")
    kafka.restart(kill=True)
    kafka.produce(topic, b"after")
    assert [r.value for r in kafka.consume(topic, until=2)] == [b"before", b"after"]


def test_kafka_frozen_answers_nobody_and_goes_on(kafka, topic):
    kafka.freeze()
    with pytest.raises(Exception, match="imed out"):
        kafka.admin().list_topics(timeout=1)
    kafka.resume()
    kafka.produce(topic, b"x")
    assert kafka.consume(topic, until=1)[0].value == b"x"


def test_kafka_with_sasl_refuses_a_wrong_password_and_a_topic_without_a_grant(make_kafka):
    from confluent_kafka import Producer
    broker = make_kafka(sasl={"relay": "secret"})
    topic = broker.create_topic()

    def outcome(password):
        errors = []
        p = Producer({"bootstrap.servers": broker.sasl_bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
                      "sasl.username": "relay", "sasl.password": password, "message.timeout.ms": 8000, "log_level": 0,
                      "error_cb": lambda e: errors.append(e.name())})
        p.produce(topic, b"x", on_delivery=lambda e, _: errors.append(e.name() if e else "delivered"))
        eventually(lambda: p.poll(0.1) and errors, 15)
        return errors

    assert "_AUTHENTICATION" in outcome("wrong")
    assert "TOPIC_AUTHORIZATION_FAILED" in outcome("secret")
    broker.allow("relay", topic)
    assert eventually(lambda: outcome("secret"), 10) == ["delivered"]


def test_mock_takes_commands(mock):
    mock.cmd("topic payments 3")
    with pytest.raises(AssertionError, match="error"):
        mock.cmd("nonsense")


def test_waiting_says_what_it_waited_for():
    with pytest.raises(AssertionError, match="the moon; last seen: 0"):
        eventually(lambda: 0, 0.1, "the moon")
    with pytest.raises(AssertionError, match="happened: rain"):
        never(lambda: True, 1, "rain")


def test_a_seed_is_given_and_reproduces(seed, rng):
    import random
    assert rng.random() == random.Random(seed).random()
