"""Whatever goes wrong inside a relay, once: the pass ends with an error, the next one goes on, and nothing stays behind."""
import re
from pathlib import Path

import psycopg
import pytest
from harness import checker
from harness.factor import scaled
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending, relays

PG_FLAVOUR = "faults"


def set_fault(pg, name):
    pg.configure(outbox__fault=name)
    pg.reload()


@pytest.fixture
def no_fault(pg):
    yield
    set_fault(pg, "")


def status(pid):
    """The number of threads and the memory in kB of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"Threads:\s+(\d+)", text)[1]), int(re.search(r"RssAnon:\s+(\d+)", text)[1])


@pytest.mark.parametrize("fault, last", [("call", 100), ("new", 36)], ids=["a call of the server fails", "memory is short"])
def test_each_step_of_the_relay_may_fail_once(db, kafka, topic, rng, no_fault, fault, last):
    """B56. `call` counts the relay's calls into PostgreSQL, begin, statements and commit among them; `new` its own allocations. A relay
    reads its sink again after a reload, so that part fails too."""
    make_sink(db, kafka, topic, batch_size=10)
    pid, = eventually(lambda: relays(db), 30, "a relay")

    def one_round(number):
        db.sql(f"SELECT outbox.add_event('key-' || g, 'changed', '{number}') FROM generate_series(1, 3) g")
        nothing_pending(db)
        eventually(lambda: db.value("SELECT state = 'idle' FROM outbox.relays"), 20, "the relay is idle")

    one_round(0)
    before = status(pid)
    hit = 0
    for number in sorted(rng.sample(range(1, last), min(scaled(12), last - 1))):
        mark = db.pg.mark()
        set_fault(db.pg, f"{fault}:{number}")
        one_round(number)
        hit += bool(re.search("a fault of the test|out of memory|bad_alloc", db.pg.log_since(mark)))
    assert hit > 0, "nothing failed"
    assert relays(db) == [pid], "it is still the same process"
    set_fault(db.pg, "")
    one_round(last)
    threads, memory = status(pid)
    assert threads == before[0], f"{threads} threads, {before[0]} before"
    assert memory < before[1] + 8_000, f"{memory} kB, {before[1]} kB before"
    events = checker.committed(db)
    checker.check(events, kafka.consume(topic)).must_hold(repeats=3 * hit)


def test_cancelled_add_events_leave_nothing_behind_and_cost_no_memory(db, kafka, topic, rng):
    """B56. `lock_keys` makes add_event wait in locks too."""
    make_sink(db, kafka, topic)
    with db.connect(autocommit=True) as c:
        def cancelled(times):
            for _ in range(times):
                # For the transaction alone: else it is this very statement that is cancelled, the next time.
                with pytest.raises(psycopg.errors.QueryCanceled), c.transaction():
                    c.execute("SELECT set_config('outbox.lock_keys', %s, true), set_config('statement_timeout', %s, true)",
                              [rng.choice(["on", "off"]), f"{rng.randint(1, 10)}ms"])
                    c.execute("SELECT count(outbox.add_event('k' || g, 'changed', '{}', headers => '{\"a\": \"b\"}'))"
                              " FROM generate_series(1, 1000000) g")
            return status(c.info.backend_pid)
        # The allocator keeps what it once had, a step now and then; a leak takes more in every round.
        threads, before = cancelled(20)
        grown = []
        while not grown or (grown[-1] >= 500 and len(grown) < 5):
            threads, after = cancelled(scaled(100))
            grown.append(after - before)
            before = after
        assert threads == 1
        assert grown[-1] < 500, f"kB more in each round: {grown}"
        c.execute("SELECT outbox.add_event('k', 'changed', '{}')")
    nothing_pending(db)
    events = checker.committed(db)
    assert len(events) == 1
    checker.check(events, kafka.consume(topic)).must_hold(repeats=0)
