"""Compares what was committed with what a consumer saw."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Event:
    """A committed event. `order` rises in commit order within a key: the event's id, or a version that the writers gave it."""
    event_id: str
    key: str | None
    payload: bytes | None
    order: int


LOG = """
    SELECT event_id::text, aggregate_id, coalesce(convert_to(payload::text, 'UTF8'), payload_bytes), id
    FROM outbox.events WHERE {where} ORDER BY id
"""


def committed(db, where="true"):
    """The events in the log, which the test must not have let retention take from it."""
    with db.connect() as connection:
        return [Event(*row) for row in connection.execute(LOG.format(where=where), binary=True)]


def event_id(record):
    return record.header("event_id")


@dataclass
class Verdict:
    committed: int
    delivered: int = 0        # different events on the topic
    lost: list = field(default_factory=list)         # committed and not on the topic
    phantom: list = field(default_factory=list)      # on the topic and never committed
    repeats: int = 0                                 # records beyond the first of each event
    disordered: list = field(default_factory=list)   # first delivery after one of a higher order of the same key
    altered: list = field(default_factory=list)      # another key or other bytes than were committed, or than the first copy had
    scattered: list = field(default_factory=list)    # keys in more than one partition
    overtaken: int = 0        # first deliveries after one of a higher order, whatever the key: late events, where order is the id

    def __str__(self):
        def few(name):
            found = getattr(self, name)
            return f"{name} {len(found)}" + (f" {found[:5]}" if found else "")
        return (f"{self.committed} committed, {self.delivered} delivered, repeats {self.repeats}, overtaken {self.overtaken}; "
                + ", ".join(few(n) for n in ("lost", "phantom", "disordered", "altered", "scattered")))

    def must_hold(self, repeats=None):
        """Nothing lost, nothing invented, nothing altered, each key in order; at most so many repeats (None: any number)."""
        bad = self.lost or self.phantom or self.disordered or self.altered or self.scattered
        assert not bad, str(self)
        assert repeats is None or self.repeats <= repeats, f"more than {repeats} repeats: {self}"
        return self


def check(events, records, ordered=True):
    """`records` in the order in which the broker has them, of a sink whose format is `payload`. ordered=False where the writers of a
    key did not take turns."""
    expected = {e.event_id: e for e in events}
    assert len(expected) == len(events), "the log has an event_id twice"
    verdict = Verdict(len(events))
    first, latest, partitions, highest = {}, {}, defaultdict(set), {}
    times = Counter(event_id(r) for r in records)
    for record in records:
        identity = event_id(record)
        copy = (record.key, record.value, sorted(record.headers))
        if identity in first:
            if copy != first[identity]:
                verdict.altered.append(identity)
            continue
        first[identity] = copy
        event = expected.get(identity)
        if event is None:
            verdict.phantom.append(identity)
            continue
        key = None if event.key is None else event.key.encode()
        if (record.key, record.value) != (key, event.payload):
            verdict.altered.append(identity)
        if event.order < highest.get(record.partition, event.order):
            verdict.overtaken += 1
        highest[record.partition] = max(event.order, highest.get(record.partition, event.order))
        if event.key is None:
            continue
        partitions[event.key].add(record.partition)
        if ordered and event.order < latest.get(event.key, event.order):
            verdict.disordered.append((event.key, event.order, latest[event.key]))
        latest[event.key] = max(event.order, latest.get(event.key, event.order))
    verdict.delivered = len(first)
    verdict.repeats = sum(times.values()) - len(times)
    verdict.lost = [e.event_id for e in events if e.event_id not in first]
    verdict.scattered = [key for key, found in partitions.items() if len(found) > 1]
    return verdict


def has_all(events):
    """For Kafka.consume(until=): true once every one of the events is there."""
    missing, looked = {e.event_id for e in events}, 0

    def all_there(got):
        nonlocal looked
        missing.difference_update(event_id(r) for r in got[looked:])
        looked = len(got)
        return not missing
    return all_there
