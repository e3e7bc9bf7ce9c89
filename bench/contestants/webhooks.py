"""Who posts to a web server that answers at once (programs/answer.cpp): outbox, wrk, and a relay by hand that posts one at a time."""

import base64
import contextlib
import http.client
import subprocess
import sys
import time

from harness import env

from ..meter import Drain
from ..stage import HERE, Failed, Program
from .by_hand import ByHand
from .outbox import Outbox

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


class Answering:
    """The server, running; called, it says how many requests it has taken."""

    def __init__(self):
        program = env.ENV / "build" / env.build_name(0, "answer").removeprefix("0-")
        done = subprocess.run(["g++", "-std=c++20", "-O2", HERE / "programs/answer.cpp", "-o", program], capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"answer.cpp does not build:\n{done.stderr}")
        self.port = env.free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self._program, self._connection = Program([program, self.port]), http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def __call__(self):
        self._connection.request("GET", "/")
        return int(self._connection.getresponse().read())

    def __enter__(self):
        deadline = time.monotonic() + 10
        while True:
            try:
                self()
                return self
            except OSError as e:
                self._connection.close()
                if time.monotonic() > deadline:
                    raise Failed(f"answer.cpp does not answer: {e}") from None
                time.sleep(0.05)

    def __exit__(self, *_):
        self._connection.close()
        self._program.stop()


class Wrk:
    """The limit: nothing but sending."""

    def __init__(self, stage, connections):
        self.stage, self.connections, self.name = stage, connections, f"wrk, {connections} connections"

    def drain(self, _):
        with Answering() as server, Program(["wrk", "-t1", f"-c{self.connections}", f"-d{self.stage.options.seconds}s", "-s", HERE / "programs/post.lua", server.url]) as wrk:
            return Drain().follow(server, 10**9, self.stage.options.seconds - 0.5, lambda: wrk.pid, wrk.check)


class Posting(ByHand):
    name = "by hand, one at a time"

    def __init__(self, stage, db):
        super().__init__(stage, db, "taught")
        self.name = Posting.name

    def drain(self, events):
        self.fill(events)
        with Answering() as server, Program([sys.executable, HERE / "programs/posting.py", self.db.dsn, server.url, SECRET]) as program:
            return Drain().follow(server, events, self.stage.options.patience, lambda: program.pid, program.check)


class OutboxHttp(Outbox):
    """One lane, all options as they are by default; the log is written once."""

    def __init__(self, stage, db, **options):
        super().__init__(stage, db)
        self.options = options
        self.name = ", ".join(["outbox", *(f"{k} {v}" for k, v in options.items())])

    @contextlib.contextmanager
    def sink(self, url):
        said = ", ".join(f"{k} '{v}'" for k, v in {"url": url, "allow_http": "true", "allow_private": "true", **self.options}.items())
        with self.made(f"CREATE SERVER bench FOREIGN DATA WRAPPER outbox_http OPTIONS ({said});"
                       f" CREATE USER MAPPING FOR CURRENT_USER SERVER bench OPTIONS (secret '{SECRET}')"):
            yield self

    def drain(self, events):
        with Answering() as server, self.sink(server.url):
            drain = Drain().follow(server, events, self.stage.options.patience, self.pid)
            self.check()
            return drain
