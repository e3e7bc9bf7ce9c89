"""A web server that does what a test tells it, on real sockets, with TLS; and a receiver that verifies what comes with the reference
library of Standard Webhooks and drops what it has had before. webhooks_wire.py speaks HTTP/1.1 and HTTP/2 for it."""

import asyncio
import base64
import json
import os
import ssl
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import trustme
from standardwebhooks import Webhook

from . import env
from .factor import patience
from .looped import Looped
from .wait import eventually
from .webhooks_wire import Http1


def new_secret(size=32):
    return "whsec_" + base64.b64encode(os.urandom(size)).decode()


SECRET = new_secret()


@dataclass
class Request:
    """As it came: header names and values, and the body's bytes. Times are those of time.monotonic()."""
    at: float
    method: str
    path: str
    protocol: str                # HTTP/1.1, HTTP/2
    headers: list[tuple[str, str]]
    body: bytes
    connection: int              # its number
    certificate: dict | None = None   # the client's
    verified: bool | None = None      # None: nobody looked
    status: int | None = None    # what it was answered, once it was
    ended: float | None = None   # when it was answered, or when its connection was lost

    def header(self, name):
        found = [v for k, v in self.headers if k.lower() == name]
        assert len(found) <= 1, f"{name} comes {len(found)} times"
        return found[0] if found else None

    @property
    def id(self):
        return self.header("webhook-id")

    @cached_property
    def event(self):
        return json.loads(self.body)

    @property
    def events(self):
        """Of a sink with the option batch, several."""
        several = isinstance(self.event, list) and all(isinstance(e, dict) and "event_id" in e for e in self.event)
        return self.event if several else [self.event]

    def has(self, key=None, type=None):
        """An event of that key and type, and one is enough."""
        return any((key is None or e.get("aggregate_id") == key) and (type is None or e.get("type") == type)
                   for e in self.events if isinstance(e, dict))

    @property
    def key(self):
        return self.event.get("aggregate_id") if isinstance(self.event, dict) else None

    @property
    def type(self):
        return self.event.get("type") if isinstance(self.event, dict) else None

    @property
    def data(self):
        """The payload's bytes as they stand in the body: what comes first as a member "data" is the event's own."""
        raw = self.body[self.body.index(b'"data":') + 7:-1]
        return None if raw == b"null" else raw


@dataclass
class Answer:
    """`how`: whole; trickle (the body byte by byte, one each `pace` seconds); never; close (without an answer); half_close (the same,
    but our side still reads); reset; cut (ends in the middle of the body); then_half_close (a whole answer, and no more on this connection)."""
    status: int = 204
    headers: dict = field(default_factory=dict)
    body: bytes = b""
    delay: float = 0.0
    how: str = "whole"
    pace: float = 0.1


@dataclass
class Rule:
    answer: Answer
    where: dict
    times: int | None
    first: int | None        # attempts of an event before this one are not meant
    used: int = 0

    def over(self):
        self.times = 0


class Webhooks(Looped):
    """Listens at `url`, and answers 204 to what it can verify, if it was given secrets, and 401 to the rest. answer() changes that."""

    def __init__(self, secrets=(SECRET,), tls=None, http2=False, host="127.0.0.1", name=None, default=None):
        self.secrets, self.tls, self.host, self.port = secrets, tls, host, env.free_port()
        if tls and http2:
            tls.set_alpn_protocols(["h2", "http/1.1"])
        name = name or ("localhost" if tls else f"[{host}]" if ":" in host else host)
        self.url = f"http{'s' if tls else ''}://{name}:{self.port}"
        self.default = default or Answer()
        self.requests, self.accepted, self.repeats = [], {}, 0  # accepted: path and id to the first request of that event
        self.connections, self.in_flight, self.most_in_flight = 0, 0, 0
        self._rules, self._attempts, self._lock = [], defaultdict(int), threading.Lock()
        self._verifiers = [Webhook(s) for s in secrets]
        self._open, self._server = set(), None
        super().__init__()

    # ---- what a test says ------------------------------------------------------------------------------------------

    def answer(self, status=204, times=None, first=None, headers=None, body=b"", delay=0.0, how="whole", pace=0.1, **where):
        """From now on, for `times` requests that match: path=, key=, type=, id=. The newest rule that matches counts. `first=3` leaves
        the first two attempts of an event out."""
        rule = Rule(Answer(status, headers or {}, body, delay, how, pace), where, times, first)
        with self._lock:
            self._rules.insert(0, rule)
        return rule

    def heal(self):
        """Everything is answered well, what has none yet is not answered any more."""
        with self._lock:
            self._rules.clear()
        self._loop.call_soon_threadsafe(self._abort_hanging)

    # ---- what it saw -----------------------------------------------------------------------------------------------

    def of(self, key=None, type=None, path=None):
        return [r for r in list(self.requests) if (key is None and type is None or r.has(key, type)) and (path is None or r.path == path)]

    def wait_for(self, count, timeout=None):
        """That many different events were accepted."""
        eventually(lambda: len(self.accepted) >= count, timeout or patience(30), lambda: f"{count} events; there are {len(self.accepted)}")
        return list(self.accepted.values())

    def records(self, path=None):
        """What was accepted, each time it was, as checker.check() wants it."""
        return [Record(r, e) for r in self.of(path=path) if r.verified is not False and r.status and 200 <= r.status < 300
                for e in r.events]

    def overlapping(self):
        """Keys that had two requests in flight at a time. That a connection was given up is seen a moment later."""
        last, bad = {}, []
        for r in sorted(self.of(), key=lambda r: r.at):
            for key in {e.get("aggregate_id") for e in r.events if isinstance(e, dict)}:
                before = last.get((r.path, key))
                if key is not None and before and (before.ended is None or before.ended - (0.2 if before.status is None else 0) > r.at):
                    bad.append((key, before, r))
                last[r.path, key] = r
        return bad

    # ---- running ---------------------------------------------------------------------------------------------------

    def start(self):
        self._server = self._run(self._listen())
        return self

    def stop(self):
        """Nobody listens any more, and every connection is closed."""
        if self._server is not None:
            self._run(self._close())
        self._server = None

    def drop(self):
        """Every connection is reset."""
        self._loop.call_soon_threadsafe(lambda: [c.reset() for c in list(self._open)])

    async def _listen(self):
        return await self._loop.create_server(lambda: Http1(self, Request), self.host, self.port, ssl=self.tls, backlog=500)

    async def _close(self):
        self._server.close()
        for c in list(self._open):
            c.reset()
        await asyncio.sleep(0)

    def _abort_hanging(self):
        for c in list(self._open):
            if c.hanging:
                c.reset()

    # ---- called by the connections, in the loop's thread -----------------------------------------------------------

    def opened(self, connection):
        self.connections += 1
        self._open.add(connection)
        return self.connections

    def closed(self, connection):
        self._open.discard(connection)

    def decide(self, request):
        """The answer to a request that has come in full."""
        if self._verifiers:
            request.verified = any(verifies(v, request) for v in self._verifiers)
        with self._lock:
            self.requests.append(request)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self._attempts[request.path, request.id] += 1
            if request.verified is False:
                return Answer(401, body=b"this signature is not right")
            for rule in self._rules:
                if (rule.times is None or rule.times > 0) and self._attempts[request.path, request.id] >= (rule.first or 0) \
                        and matches(request, **rule.where):
                    rule.times = rule.times and rule.times - 1
                    rule.used += 1
                    return rule.answer
        return self.default

    def answered(self, request, status):
        """status None: its connection was lost before."""
        with self._lock:
            if request.ended is not None:
                return
            request.status, request.ended = status, time.monotonic()
            self.in_flight -= 1
            if status and 200 <= status < 300:
                self.repeats += (request.path, request.id) in self.accepted
                self.accepted.setdefault((request.path, request.id), request)


def matches(request, key=None, type=None, **where):
    return (key is None and type is None or request.has(key, type)) and all(getattr(request, name) == value for name, value in where.items())


def verifies(verifier, request):
    try:
        verifier.verify(request.body, {name.lower(): value for name, value in request.headers})
    except Exception:  # noqa: BLE001  whatever it minds
        return False
    return True


class Record:
    """An event that was taken, as the checker has a record of a topic."""

    partition = 0

    def __init__(self, request, event):
        alone = event is request.event
        body = request.body if alone else element(request.body, event["event_id"])
        key = event.get("aggregate_id") if isinstance(event, dict) else None
        self.key = None if key is None else key.encode()
        self.value = request.data if alone else value_in(body)
        self.headers = [("event_id", request.id.encode() if alone else event["event_id"].encode()), ("body", body)]

    def header(self, name):
        return dict(self.headers)[name].decode()


def element(body, event_id):
    """One of several events, as it stands in the body."""
    text = body.decode()
    begin = text.rindex('{"type":', 0, text.index(f'"event_id":"{event_id}"'))
    return text[begin:json.JSONDecoder().raw_decode(text, begin)[1]].encode()


def value_in(element):
    """The payload of one of several events: from its "data" on, to where JSON says that it ends; headers may come behind."""
    text = element.decode()
    data = text.index('"data":') + 7
    raw = text[data:json.JSONDecoder().raw_decode(text, data)[1]]
    return None if raw == "null" else raw.encode()


# ---- certificates ----------------------------------------------------------------------------------------------------------

class Authority:
    """Issues certificates; `pem` is its own, for the option ca_certificate."""

    def __init__(self):
        self._ca = trustme.CA()
        self.pem = self._ca.cert_pem.bytes().decode()

    def server(self, *names, client=None):
        """A TLS context for a server of these names; with `client` it asks for a certificate of that authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*(names or ("localhost", "127.0.0.1"))).configure_cert(context)
        if client:
            client._ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(self, name="relay@outbox.example"):
        """Certificate and key, as PEM."""
        leaf = self._ca.issue_cert(name)
        return "".join(p.bytes().decode() for p in leaf.cert_chain_pems), leaf.private_key_pem.bytes().decode()


# ---- sinks -----------------------------------------------------------------------------------------------------------------

def literal(value):
    return "'" + str(value).replace("'", "''") + "'"


def options(values):
    return "OPTIONS (" + ", ".join(f"{name} {literal(value)}" for name, value in values.items()) + ")"


def make_webhook_sink(db, where, name="hooks", mapping=None, **more):
    """`where`: a Webhooks, or a URL. The user mapping has a secret unless `mapping` says otherwise."""
    url = where if isinstance(where, str) else where.url
    values = {"url": url, "allow_private": "true", **({"allow_http": "true"} if url.startswith("http:") else {}), **more}
    values = {k: v for k, v in values.items() if v is not None}
    secrets = {"secret": " ".join(where.secrets)} if isinstance(where, Webhooks) and where.secrets else {"secret": SECRET}
    mapping = secrets if mapping is None else mapping
    db.sql(f"BEGIN; CREATE SERVER {name} FOREIGN DATA WRAPPER outbox_http {options(values)};"
           + (f"CREATE USER MAPPING FOR CURRENT_USER SERVER {name} {options(mapping)};" if mapping else "") + "COMMIT")


def write(db, events, keys=20, type="written", prefix="key-"):
    """Events of `keys` keys in turn; the payload says which they are."""
    db.sql("SELECT outbox.add_event(%s || (g %% %s)::text, %s, json_build_object('row', g)) FROM generate_series(1, %s) g", [prefix, keys, type, events])


@contextmanager
def paused(db):
    """What is written meanwhile is pending together."""
    db.sql("SELECT outbox.pause('hooks')")
    state_is(db, "paused")
    yield
    db.sql("SELECT outbox.resume('hooks')")


def write_while_paused(db, *args, **kwargs):
    with paused(db):
        write(db, *args, **kwargs)


def lag(db, sink="hooks"):
    """state, last_error, parked, dead"""
    return db.sql("SELECT state, coalesce(last_error, ''), parked, dead FROM outbox.lag WHERE sink = %s", [sink])[0]


def state_is(db, state, sink="hooks", timeout=20):
    eventually(lambda: lag(db, sink)[0] == state, timeout, lambda: f"the state {state}: {lag(db, sink)}")
