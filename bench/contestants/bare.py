"""The limit: a librdkafka program that does nothing but send (programs/bare_producer.cpp)."""

import contextlib
import subprocess

from harness import env

from ..meter import Drain
from ..stage import HERE, SIZE, Failed, Program

LINGERS = (0, 5, 50)
# What a sink sets by itself; linger.ms is each side's own.
PROPERTIES = {"enable.idempotence": "true", "enable.gapless.guarantee": "true", "acks": "all", "message.timeout.ms": 0,
              "partitioner": "murmur2_random", "socket.nagle.disable": "true", "socket.keepalive.enable": "true",
              "allow.auto.create.topics": "false", "log_level": 0}


def build():
    program = env.ENV / "build" / env.build_name(0, "bare_producer").removeprefix("0-")
    done = subprocess.run(["g++", "-std=c++20", "-O2", HERE / "programs/bare_producer.cpp", "-lrdkafka", "-o", program],
                          capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"bare_producer.cpp does not build:\n{done.stderr}")
    return program


class Bare:
    def __init__(self, stage, linger):
        self.stage, self.linger = stage, linger
        self.name = f"bare librdkafka, linger.ms {linger}"
        self._program = build()

    @contextlib.contextmanager
    def sending(self, topic, count, per_second=0):
        """The program, running; with per_second it sends at that pace, and says in each event when it was sent."""
        properties = PROPERTIES | {"bootstrap.servers": self.stage.kafka.bootstrap, "linger.ms": self.linger}
        with Program([self._program, topic, count, SIZE, per_second, *(f"{k}={v}" for k, v in properties.items())]) as program:
            yield program

    def drain(self, events):
        with self.stage.topic() as topic, self.sending(topic, events) as program:
            return Drain().watch(self.stage.kafka, topic, events, self.stage.options.patience, lambda: program.pid, program.check)
