"""A planned stop repeats nothing that the broker acknowledges within two seconds, and takes less than three, whatever the
broker does."""
import contextlib
import json
import socket
import time

import pytest
from harness import checker, env
from harness.factor import scaled
from harness.wait import eventually
from harness.workload import GONE, Session, drops_another, make_sink, meanwhile, nothing_pending, relays

LONGEST = 3.0
WRITE = """
    INSERT INTO outbox.events (aggregate_id, event_type, payload)
    SELECT 'key-' || g %% 20, 'written', json_build_object('row', g) FROM generate_series(1, %s) g
"""


def write(db, events):
    db.sql(WRITE, [events])


def writer(db, events, pause):
    """One writer, so that the keys' order is the ids' order; it survives stops of the server."""
    def body(over):
        session = Session(db)

        def transaction(c):
            c.execute(WRITE, [events])
            c.commit()
        while not over.wait(pause):
            session.run(transaction)
        session.close()
    return meanwhile(body)


def lag(db):
    return db.sql("SELECT state, coalesce(last_error, ''), pending FROM outbox.lag")[0]


def published(db):
    return db.value("SELECT published FROM outbox.relays")


def at_work(db):
    """Waits until the relay has a batch in hand that it had not before."""
    before = eventually(lambda: (published(db),), 60, "the server", ignore=GONE)[0]
    eventually(lambda: published(db) > before, 60, "events are published")
    eventually(lambda: lag(db)[0] == "running", 60, "a batch is under way", interval=0.002)


def each_once(db, cluster, topic, repeats=0):
    nothing_pending(db)
    events = checker.committed(db)
    records = cluster.consume(topic, until=checker.has_all(events))
    checker.check(events, records).must_hold(repeats=repeats)


def short_stop(pg, meanwhile=lambda: None, **start):
    """A fast stop, and a start. What a stop has to do on disk is not what is measured."""
    pg.sql("CHECKPOINT")
    took = pg.stop("fast")
    meanwhile()
    pg.start(**start)
    assert took < LONGEST, f"the stop took {took:.2f} s"


class Planned:
    """The ways in which a relay is stopped or made to begin anew, on purpose."""

    def __init__(self, db):
        self.db, self.linger = db, 5
        db.sql("ALTER SERVER kafka OPTIONS (ADD linger_ms '5')")

    def terminate(self):
        pid = relays(self.db)[0]
        self.db.sql("SELECT pg_terminate_backend(%s)", [pid])
        eventually(lambda: [p for p in relays(self.db) if p != pid], 30, "another relay")

    def reload(self):
        self.db.pg.reload()

    def alter(self):
        self.linger = 11 - self.linger
        self.db.sql(f"ALTER SERVER kafka OPTIONS (SET linger_ms '{self.linger}')")

    def stop_fast(self):
        short_stop(self.db.pg)


WAYS = ["terminate", "reload", "alter", "stop_fast"]


@pytest.mark.matrix
def test_a_planned_stop_under_load_repeats_nothing(db, kafka, topic):
    """B16."""
    make_sink(db, kafka, topic)
    planned = Planned(db)
    with writer(db, 500, 0.03):
        for way in WAYS * scaled(2):
            at_work(db)
            getattr(planned, way)()
    each_once(db, kafka, topic)


def test_a_planned_stop_repeats_nothing_although_the_broker_takes_half_a_second(db, mock):
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", batch_size=500)
    planned = Planned(db)
    mock.cmd("rtt -1 500")
    with writer(db, 10, 0.05):  # a mock broker forgets what is beyond 5 MB
        for way in WAYS * scaled(1):
            at_work(db)
            getattr(planned, way)()
    mock.cmd("rtt -1 0")
    each_once(db, mock, "t")


@pytest.mark.parametrize("size", [300, 100_000])
def test_a_relay_that_is_terminated_while_the_broker_hesitates_repeats_nothing(db, kafka, topic, size):
    """Full requests are on their way, maybe one of them in part, when the stop comes; their acknowledgements come a moment later."""
    make_sink(db, kafka, topic)
    for _ in range(scaled(2)):
        write(db, 1)
        nothing_pending(db)  # and the relay's connection is there
        pid = relays(db)[0]
        kafka.freeze()
        db.sql("INSERT INTO outbox.events (aggregate_id, event_type, payload) SELECT 'k', 'x', to_json(repeat('x', %s)) FROM generate_series(1, 150)",
               [size])
        eventually(lambda: lag(db)[0] == "running", 20, "a batch is under way", interval=0.002)
        time.sleep(0.2)  # until the connection takes no more
        db.sql("SELECT pg_terminate_backend(%s)", [pid])
        time.sleep(0.3)
        assert relays(db) == [pid], "it waits for what is on its way"
        kafka.resume()
        eventually(lambda p=pid: [r for r in relays(db) if r != p], 30, "another relay")
        nothing_pending(db)
    each_once(db, kafka, topic)


def test_what_has_not_left_when_the_stop_comes_is_not_sent_in_the_meantime(db, mock):
    """Two seconds are enough for every request on its way, not for the whole batch: the rest of it must not be on its way then."""
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", batch_num_messages=100)
    write(db, 1)
    nothing_pending(db)
    mock.cmd("rtt -1 1500")
    mock.cmd("push_error_rtts 1 Produce 0:0")
    write(db, 10_000)  # 100 requests, 5 at a time
    eventually(lambda: mock.cmd("errors_left 1 Produce") == "0", 20, "some of them have left", interval=0.01)
    short_stop(db.pg, lambda: mock.cmd("rtt -1 0"))
    each_once(db, mock, "t")


def test_where_acknowledgements_are_swallowed_repeats_stay_within_the_batch(db, mock):
    batch = 100
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", batch_size=batch)
    write(db, 1)
    nothing_pending(db)
    mock.cmd("rtt -1 20000")
    mock.cmd("push_error_rtts 1 Produce 0:0")
    write(db, 5 * batch)
    eventually(lambda: mock.cmd("errors_left 1 Produce") == "0", 20, "the broker has a request")
    drops_another(db.pg)
    short_stop(db.pg, lambda: mock.cmd("rtt -1 0"))
    each_once(db, mock, "t", repeats=batch)


# ---- how long it takes -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("known", [False, True], ids=["in the middle of a batch", "while the relay backs off"])
def test_the_stop_is_short_while_connections_are_refused(db, mock, known):
    mock.cmd("topic t 1")
    make_sink(db, mock, "t", delivery_timeout="1s" if known else "30s")
    write(db, 1)
    nothing_pending(db)
    mock.kill()
    write(db, 1000)
    eventually(lambda: lag(db)[0] == ("backing_off" if known else "running"), 20, "the relay notices")
    drops_another(db.pg)
    short_stop(db.pg)


@pytest.mark.parametrize("known", [False, True], ids=["in the middle of a batch", "while the relay backs off"])
def test_the_stop_is_short_while_the_broker_is_frozen(db, kafka, topic, known):
    """B32."""
    make_sink(db, kafka, topic, delivery_timeout="1s" if known else "30s")
    write(db, 1)
    nothing_pending(db)
    kafka.freeze()
    write(db, 1000)
    eventually(lambda: lag(db)[0] == ("backing_off" if known else "running"), 20, "the relay notices")
    drops_another(db.pg)
    short_stop(db.pg, kafka.resume)
    each_once(db, kafka, topic, repeats=1000)


def test_the_stop_is_short_while_somebody_listens_and_never_answers(db):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        db.sql(f"""CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka
                   OPTIONS (bootstrap_servers '127.0.0.1:{silent.getsockname()[1]}', topic 't')""")
        write(db, 1000)
        eventually(lambda: lag(db)[0] == "running", 20, "a batch is under way")
        drops_another(db.pg)
        short_stop(db.pg)


@pytest.mark.parametrize("known", [False, True], ids=["in the middle of a batch", "while the relay backs off"])
def test_the_stop_is_short_while_the_name_server_does_not_answer(make_pg, known):
    """B32. The server sees a resolv.conf of its own, whose name server takes questions and answers none."""
    if not env.IS_ROOT:
        pytest.skip("a mount namespace of its own needs root")
    pg = make_pg(start=False)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        for host in range(2, 250):
            with contextlib.suppress(OSError):
                resolver.bind((f"127.53.0.{host}", 53))
                break
        conf = pg.dir / "resolv.conf"
        conf.write_text(f"nameserver {resolver.getsockname()[0]}\noptions timeout:30 attempts:1\n")
        target = f"{pg.root or ''}/etc/resolv.conf"
        outer = ["unshare", "--mount", "sh", "-c", f'mount --bind "$0" {target} && exec "$@"', str(conf)]
        pg.start(outer=outer)
        pg.sql("CREATE EXTENSION outbox")
        pg.sql(f"""CREATE SERVER kafka FOREIGN DATA WRAPPER outbox_kafka
                   OPTIONS (bootstrap_servers 'broker.example:9092', topic 't', delivery_timeout '{"1s" if known else "30s"}')""")
        pg.sql("SELECT outbox.add_event('k', 'written', '1') FROM generate_series(1, 1000)")
        eventually(lambda: pg.value("SELECT state FROM outbox.lag") == ("backing_off" if known else "running"), 20, "the relay notices")
        resolver.settimeout(10)
        assert b"example" in resolver.recv(512), "no name was looked up"
        drops_another(pg)
        short_stop(pg, outer=outer)


def test_a_stop_in_the_middle_of_an_outage_loses_nothing_and_repeats_nothing(db, kafka, topic):
    make_sink(db, kafka, topic, delivery_timeout="1s")
    write(db, 100)
    nothing_pending(db)
    kafka.kill()
    write(db, 1000)
    eventually(lambda: lag(db)[0] == "backing_off", 20, "the relay backs off")
    short_stop(db.pg, kafka.start)
    each_once(db, kafka, topic)
    assert json.loads(kafka.consume(topic, until=1)[0].value) == {"row": 1}
