"""The short life of a server under valgrind: no invalid access, nothing read that was never written, nothing lost."""
import re
import shutil

import psycopg
import pytest
from harness import env
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending, relays

VALGRIND = ["valgrind", "--trace-children=yes", "--num-callers=30", "--error-limit=no", "--leak-check=full", "--show-leak-kinds=definite",
            "--errors-for-leak-kinds=definite"]


def complaints(log):
    """What valgrind found, without its banner."""
    return "\n".join(line for line in log.splitlines() if re.match(r"==\d+== *\S", line) and "Memcheck" not in line)


def test_relays_and_writers_are_clean_while_they_publish_park_lose_the_broker_and_end(make_pg, mock):
    """B44."""
    if not shutil.which("valgrind"):
        pytest.skip("no valgrind")
    pg = make_pg(start=False, conf={"shared_buffers": "8MB", "max_connections": 20, "max_worker_processes": 8, "autovacuum": "off"})
    suppressions = pg.dir / "valgrind.supp"
    shutil.copy(env.REPO / "tests/env/valgrind.supp", suppressions)
    suppressions.chmod(0o644)
    pg.start(timeout=300, wrapper=[*VALGRIND, f"--log-file={pg.inner(pg.dir)}/%p.valgrind", f"--suppressions={pg.inner(suppressions)}"])
    mock.cmd("topic t 1")
    pg.sql("CREATE EXTENSION outbox")
    make_sink(pg, mock, "t", lanes=2, delivery_timeout="2s", stall_timeout="1s")
    pids = set(eventually(lambda: len(relays(pg)) == 2 and relays(pg), 120, "two relays"))

    with pytest.raises(psycopg.Error, match="headers"):
        pg.sql("SELECT outbox.add_event('k', 'x', '1', headers => '[1]')")
    pg.sql("SELECT outbox.add_event('k' || g % 20, 'x', '1', headers => '{\"a\": \"b\"}') FROM generate_series(1, 1000) g")
    pg.sql("INSERT INTO outbox.events (aggregate_id, event_type, payload_bytes) SELECT g % 20, 'x', '\\x00ff' FROM generate_series(1, 500) g")
    nothing_pending(pg, 120)

    mock.cmd("push_errors Produce MSG_SIZE_TOO_LARGE,MSG_SIZE_TOO_LARGE")  # once for the request, once for the event alone
    pg.sql("SELECT outbox.add_event('poison', 'x', '2')")
    eventually(lambda: pg.value("SELECT count(*) FROM outbox.parked WHERE reason = 'dead'") == 1, 120, "it is parked")
    pg.sql("SELECT outbox.redrive('kafka')")
    eventually(lambda: pg.value("SELECT count(*) FROM outbox.parked") == 0, 120, "it is sent")

    mock.cmd("down 1")
    pg.sql("SELECT outbox.add_event('k' || g % 20, 'x', '3') FROM generate_series(1, 100) g")
    eventually(lambda: pg.value("SELECT bool_and(state = 'backing_off') FROM outbox.relays"), 120, "an outage")
    pg.sql("SELECT * FROM outbox.lag, outbox.health, outbox.relays")
    mock.cmd("up 1")
    nothing_pending(pg, 120)

    pg.sql("ALTER SERVER kafka OPTIONS (ADD linger_ms '5', SET lanes '1')")
    eventually(lambda: len(relays(pg)) == 1, 120, "one lane")
    pg.sql("SELECT pg_terminate_backend(%s)", [relays(pg)[0]])
    pids |= set(eventually(lambda: [p for p in relays(pg) if p not in pids], 120, "a new relay"))
    pg.sql("SELECT outbox.add_event('last', 'x', '4')")
    nothing_pending(pg, 120)
    pg.sql("DROP EXTENSION outbox CASCADE")
    pg.stop("fast", timeout=120)

    logs = {int(file.stem): file.read_text() for file in pg.dir.glob("*.valgrind")}
    assert pids <= logs.keys()
    dirty = [complaints(log) for log in logs.values() if "ERROR SUMMARY: 0 errors" not in log]
    assert not dirty, "\n\n".join(dirty)
