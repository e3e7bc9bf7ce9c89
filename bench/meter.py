"""How fast a topic fills, seen from the broker, so that all contestants are measured the same way; and what it costs their processes."""

import os
import time
from bisect import bisect_left
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from .stage import Failed

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """Seconds of CPU that the process has used: its first thread, and the others, those that have ended among them. Nothing when it has gone."""
    def seconds(stat):
        fields = Path(stat).read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK
    try:
        first = seconds(f"/proc/{pid}/task/{pid}/stat")
        return first, max(seconds(f"/proc/{pid}/stat") - first, 0.0)
    except (OSError, IndexError):
        return 0.0, 0.0


def run_time(pid):
    """Seconds of CPU that the process's own thread has used, to the nanosecond; for what takes little."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


class Level:
    """How many events a topic of one partition has."""

    def __init__(self, kafka, topic):
        self._partition = TopicPartition(topic, 0)
        self._consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "meter", "log_level": 0})

    def __call__(self):
        try:
            return self._consumer.get_watermark_offsets(self._partition, timeout=20)[1]
        except KafkaException as e:
            raise Failed(f"the broker does not say how full the topic is: {e}") from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._consumer.close()


class Drain:
    """The filling of a topic, by samples: seconds since the first event was seen, events, CPU of the process so far."""

    def __init__(self):
        self.times, self.events, self.cpu = [], [], []

    def watch(self, kafka, topic, *args, **kw):
        with Level(kafka, topic) as level:
            return self.follow(level, *args, **kw)

    def follow(self, level, wanted, patience, pid=None, check=lambda: None, start_within=120):
        """Until there are `wanted` events by level(), or for `patience` seconds. `pid()` gives the process whose CPU counts."""
        deadline = time.monotonic() + start_within
        began, process = None, None
        while True:
            now, count = time.monotonic(), level()
            if began is None and count == 0:
                check()
                if now > deadline:
                    raise Failed(f"nothing came within {start_within} s")
                time.sleep(0.005)
                continue
            if began is None:
                began, moved = now, now
                process = pid() if pid else None
            if self.events and count > self.events[-1]:
                moved = now
            self.times.append(now - began)
            self.events.append(count)
            self.cpu.append(cpu_seconds(process) if process else (0.0, 0.0))
            if count >= wanted or now - began > patience:
                return self
            check()
            if now - moved > 60:
                raise Failed(f"it stands still at {count:,} of {wanted:,} events")
            time.sleep(0.01)

    def rate(self, skip=1.0):
        """Events a second, the first `skip` seconds left out."""
        first = bisect_left(self.times, skip)
        if first >= len(self.times) - 1 or self.times[-1] - self.times[first] < 0.2:
            raise Failed(f"it was over within {self.times[-1]:.1f} s: EVENTS must be more")
        return (self.events[-1] - self.events[first]) / (self.times[-1] - self.times[first])

    def cpu_per_event(self, skip=1.0):
        """Microseconds: of the process's own thread, and of its others, which are librdkafka's."""
        first = bisect_left(self.times, skip)
        # When a process has gone its last sample counts.
        last = max((i for i, c in enumerate(self.cpu) if sum(c) > 0), default=0)
        events = self.events[last] - self.events[first] if last > first else 0
        if events <= 0:
            raise Failed("no CPU was measured")
        return tuple(1e6 * (b - a) / events for a, b in zip(self.cpu[first], self.cpu[last], strict=True))

    def tenths(self, skip=1.0):
        """The rate of each tenth of the events that came after the first `skip` seconds."""
        first = bisect_left(self.times, skip)
        if first >= len(self.times) - 10:
            raise Failed(f"it was over within {self.times[-1]:.1f} s: EVENTS must be more")
        begin, end = self.events[first], self.events[-1]
        marks = [self.time_of(begin + (end - begin) * k / 10) for k in range(11)]
        return [(end - begin) / 10 / max(b - a, 1e-9) for a, b in zip(marks, marks[1:], strict=False)]

    def time_of(self, count):
        """When the topic had that many events, between two samples by the line that joins them."""
        i = bisect_left(self.events, count)
        if i == 0:
            return self.times[0]
        a, b = self.events[i - 1], self.events[i]
        return self.times[i - 1] + (self.times[i] - self.times[i - 1]) * (count - a) / (b - a)


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
