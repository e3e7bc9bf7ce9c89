"""What the tests of the publish loop have in common: sinks, writers that survive crashes, and whoever kills relays and servers."""

import contextlib
import signal
import threading
import time

import psycopg

from .factor import patience
from .wait import eventually

GONE = (psycopg.OperationalError, psycopg.InterfaceError)  # a lost connection; also "the database system is starting up"


def make_sink(db, kafka, topic, name="kafka", **options):
    """Records of the format `payload`: the value is what was written, byte for byte, and the header event_id tells who it is."""
    options = {"bootstrap_servers": kafka.bootstrap, "topic": topic, "format": "payload", **options}
    text = ", ".join(f"{key.replace('.', '_')} '{value}'" for key, value in options.items())
    db.sql(f"CREATE SERVER {name} FOREIGN DATA WRAPPER outbox_kafka OPTIONS ({text})")


def nothing_pending(db, timeout=None):
    """Waits until every sink has everything, by the predicate in full."""
    eventually(lambda: db.value("SELECT count(*) FROM outbox.pending") == 0, timeout or patience(60), "nothing pending", ignore=GONE,
               interval=0.2)


def relays(db, name=None):
    """Pids of the database's relays; of the one called `name`, seen from any."""
    return [pid for pid, in db.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox relay'"
                                   " AND datname = coalesce(%s, current_database())", [name])]


class Session:
    """A connection that is made anew when the server went away. What became of the transaction then, only the log knows."""

    def __init__(self, db, settings=""):
        self.db, self.settings, self.connection = db, settings, None

    def run(self, body, patience=90):
        """body(connection) once, in a connection that is not in a transaction. True: it came to its end; False: the server
        went away in the middle."""
        deadline = time.monotonic() + patience
        while self.connection is None:
            try:
                self.connection = self.db.connect(autocommit=False, connect_timeout=10)
                if self.settings:
                    self.connection.execute(self.settings)
                    self.connection.commit()
            except GONE:
                self.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        try:
            body(self.connection)
            return True
        except GONE:
            self.close()
            return False

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class Threads:
    """Threads that the test joins; what one of them raises, the test raises."""

    def __init__(self):
        self.threads, self.errors = [], []

    def start(self, body, *args):
        def guarded():
            try:
                body(*args)
            except BaseException as e:  # noqa: BLE001  it is raised by join()
                self.errors.append(e)
        self.threads.append(threading.Thread(target=guarded, daemon=True))
        self.threads[-1].start()

    @property
    def running(self):
        return any(t.is_alive() for t in self.threads) and not self.errors

    def join(self, timeout=200):
        deadline = time.monotonic() + patience(timeout)
        for thread in self.threads:
            while thread.is_alive() and not self.errors:
                assert time.monotonic() < deadline, "a thread of the test did not end"
                thread.join(0.2)
        if self.errors:
            raise self.errors[0]


def drops_another(pg):
    """DROP DATABASE of one that has nothing to do with us waits for every process of the server to answer, so for relays too."""
    pg.sql("CREATE DATABASE another")
    begin = time.monotonic()
    pg.sql("DROP DATABASE another")
    took = time.monotonic() - begin
    assert took < 5, f"DROP DATABASE of another database took {took:.1f} s"


@contextlib.contextmanager
def meanwhile(body):
    """body(over) in a thread, for as long as the block runs: it comes to its end once the event `over` is set."""
    threads, over = Threads(), threading.Event()
    threads.start(body, over)
    try:
        yield
    finally:
        over.set()
    threads.join()


class Killer:
    """Kills relays, and the server's processes with one. Counts what it did, since each may repeat a batch."""

    def __init__(self, db, rng):
        self.db, self.rng = db, rng
        self.terminated = self.crashes = self.stops = 0

    def victim(self):
        """A relay that is at work."""
        def found():
            pids = relays(self.db)
            return pids and self.rng.choice(pids)
        return eventually(found, 90, "a relay", ignore=GONE)

    def terminate(self):
        self.db.sql("SELECT pg_terminate_backend(%s)", [self.victim()])
        self.terminated += 1

    def crash(self, pid=None):
        """kill -9 of a relay, or of another process: the postmaster ends all its processes and recovers."""
        before = self.db.pg.mark()

        def crashed():
            return "all server processes terminated; reinitializing" in self.db.pg.log_since(before)

        def killed():
            if not crashed():
                self.db.pg.signal(pid or self.victim(), signal.SIGKILL)
                self.crashes += 1
            # A relay that was told to end a moment ago may have done so by itself when the signal came: then it is another one's turn.
            return eventually(crashed, 10)
        eventually(killed, 60, "the restart after a crash", ignore=(ProcessLookupError,))
        self.db.pg.wait_recovered()
        self.db.pg.expect_crash()

    def immediate_stop(self):
        self.db.pg.stop("immediate")
        self.stops += 1
        self.db.pg.start()

    def kill_postmaster(self):
        self.db.pg.kill()
        self.stops += 1
        self.db.pg.start()

    def most_repeats(self, lanes, batch):
        """One batch per lane and kill."""
        return batch * (self.terminated + lanes * (self.crashes + self.stops))


def pause(rng, longest):
    """Somebody else's turn: what a writer does between two statements."""
    time.sleep(rng.random() * longest)
