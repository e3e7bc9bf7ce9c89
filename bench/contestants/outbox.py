"""outbox: the extension's own relay, with 1, 2 or 4 lanes."""

import contextlib

from ..meter import Drain
from ..stage import Failed
from .event import KEYS, backlog


class Outbox:
    """One database with the extension. The log is written once; each drain is that of a new sink, which begins at the earliest event."""

    def __init__(self, stage, db, lanes=1):
        self.stage, self.db, self.lanes = stage, db, lanes
        self.name = "outbox" if lanes == 1 else f"outbox, {lanes} lanes"

    def fill(self, count, key=f"'key-' || g %% {KEYS}"):
        self.db.sql(*backlog("outbox.events", count, key))
        self.db.sql("VACUUM ANALYZE outbox.events")

    @contextlib.contextmanager
    def sink(self, topic, start="earliest", paused=False, **options):
        """The only sink of this database; its name is forgotten at the end."""
        options = {"bootstrap_servers": self.stage.kafka.bootstrap, "topic": topic, "format": "payload", "lanes": self.lanes,
                   "start": start} | options
        said = ", ".join(f"{k} '{v}'" for k, v in options.items())
        pause = "; SELECT outbox.pause('bench')" if paused else ""
        with self.made(f"CREATE SERVER bench FOREIGN DATA WRAPPER outbox_kafka OPTIONS ({said}){pause}"):
            yield self

    @contextlib.contextmanager
    def made(self, statements):
        self.db.sql(f"BEGIN; {statements}; COMMIT")
        try:
            yield self
        finally:
            if self.db.pg.running:
                self.db.sql("DROP SERVER IF EXISTS bench CASCADE")
                self.db.sql("SELECT outbox.forget(name) FROM outbox.sinks")

    def sink_from_now(self, topic):
        return self.sink(topic, start="latest")

    def pid(self):
        """The process of the only lane."""
        return self.db.value("SELECT max(pid) FROM outbox.relays") if self.lanes == 1 else None

    def check(self):
        said = self.db.value("SELECT max(last_error) FROM outbox.relays")
        if said:
            raise Failed(f"the relay says: {said}")

    def drain(self, events):
        with self.stage.topic() as topic, self.sink(topic):
            drain = Drain().watch(self.stage.kafka, topic, events, self.stage.options.patience, self.pid)
            self.check()
            return drain
