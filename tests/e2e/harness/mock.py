"""The mock broker (tests/mock): librdkafka's mock cluster in a process of its own, for faults that a real broker cannot be
asked for. Order and duplicates are judged on real Kafka, not here."""

import os
import select
import signal
import subprocess
import time
from functools import lru_cache

from . import env
from .kafka import Cluster


@lru_cache(None)
def binary():
    out = env.ENV / "build" / "mock_broker"
    out.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["make", "-s", "-C", str(env.REPO / "tests/mock"), f"OUT={out}"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"building the mock broker failed:\n{done.stderr}")
    return out


class Mock(Cluster):
    """`bootstrap` is its address, consume() reads it as Kafka's does; cmd("topic payments 3") gives a fault command, see tests/mock/mock_broker.cpp."""

    def __init__(self, *args):
        self.args = [str(a) for a in args]
        self.proc = None
        self.bootstrap = None
        self.dir = env.temp_dir("mock")
        self.logfile = self.dir / "log"
        self._pending = b""

    def start(self, timeout=30):
        with self.logfile.open("ab") as log:
            self.proc = subprocess.Popen(env.command([binary(), *self.args], dies_by="KILL"), stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=log, bufsize=0, cwd="/", start_new_session=True)
        self._pending = b""
        line = self._line(timeout)
        assert line.startswith("bootstrap.servers="), f"the mock broker said {line!r}"
        self.bootstrap = line.split("=", 1)[1].strip()
        return self

    def cmd(self, line, timeout=30):
        """Sends one command; returns what follows "ok", or fails."""
        self.proc.stdin.write(line.encode() + b"\n")
        answer = self._line(timeout)
        assert answer.split(" ", 1)[0] == "ok", f"{line!r} gave {answer!r}"
        return answer[2:].strip()

    def _line(self, timeout):
        deadline = time.monotonic() + timeout
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.proc.stdout], [], [], left)[0]:
                raise AssertionError(f"no answer from the mock broker within {timeout} s")
            chunk = os.read(self.proc.stdout.fileno(), 65536)
            if not chunk:
                raise AssertionError(f"the mock broker has gone (exit {self.proc.wait(5)}):\n{env.tail(self.log())}")
            self._pending += chunk
        line, self._pending = self._pending.split(b"\n", 1)
        return line.decode()

    @property
    def running(self):
        return self.proc is not None and self.proc.poll() is None

    def stop(self):
        if self.running:
            self.proc.stdin.close()
            try:
                self.proc.wait(5)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self):
        if self.running:
            env.send(self.proc.pid, signal.SIGKILL)
            self.proc.wait()

    def freeze(self):
        env.freeze(self.proc.pid)

    def resume(self):
        env.send(self.proc.pid, signal.SIGCONT)

    def close(self):
        if self.running:
            self.resume()
        self.stop()
        env.remove_tree(self.dir)

    def log(self):
        return self.logfile.read_text(errors="replace") if self.logfile.exists() else ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
