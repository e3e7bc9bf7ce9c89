"""H1: how fast a backlog goes to a web server that answers at once."""

import contextlib

from ..contestants.webhooks import OutboxHttp, Posting, Wrk
from ..report import Row, best, pairs
from ..stage import in_rounds

FIGURES = ("H1",)
CONNECTIONS = 8, 64


def turn(contestant, events):
    drain = contestant.drain(events)
    return {"rate": drain.rate(), "cpu": sum(drain.cpu_per_event())}


def measure(stage, raw):
    events = min(stage.options.events, 300_000)
    with contextlib.ExitStack() as stack:
        contestants = [Wrk(stage, n) for n in CONNECTIONS] if stage.wants("wrk") else []
        if stage.wants("outbox"):
            db = stack.enter_context(stage.database("bench_webhooks"))
            outbox = [OutboxHttp(stage, db, **more) for more in ({}, {"concurrency": 64})]
            outbox[0].fill(events)
            contestants += outbox
        if stage.wants("taught"):
            contestants.append(Posting(stage, stack.enter_context(stage.database("bench_posting", extension=False))))
        in_rounds(stage, "webhooks", {c.name: (lambda c=c: turn(c, events)) for c in contestants}, raw.setdefault("rounds", []))


def rows(raw):
    rounds = raw["rounds"]
    limit = best(rounds, [f"wrk, {n} connections" for n in CONNECTIONS], "rate")
    return [Row("H1", f"webhooks, a backlog, one lane : {limit}", *pairs(rounds, "outbox", limit, "rate"), "requests/s"),
            Row("H1", f"webhooks, a backlog, one lane : {Posting.name}", *pairs(rounds, "outbox", Posting.name, "rate"), "events/s")]


def tables(raw):
    return [("Webhooks to a server that answers at once", raw["rounds"], {"rate": "requests/s", "cpu": "us of CPU per request"})]
