"""Fixtures of the end-to-end tests; tests/README.md lists them."""

import os
import random
import signal
import sys
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest  # noqa: E402

from harness import env  # noqa: E402
from harness import kafka as kafka_module  # noqa: E402
from harness.kafka import Kafka  # noqa: E402
from harness.mock import Mock  # noqa: E402
from harness.postgres import Database, Postgres  # noqa: E402
from harness.webhooks import Authority, Webhooks  # noqa: E402

LONG = bool(os.environ.get("OUTBOX_LONG"))
VERSIONS = sorted({15, 17, 18, env.default_version()})


def pytest_sessionstart(session):
    def terminate(*_):
        raise KeyboardInterrupt("SIGTERM")
    signal.signal(signal.SIGTERM, terminate)  # so that fixtures stop what they started
    env.sweep()


def pytest_collection_modifyitems(config, items):
    """Long tests are not there at all in the quick tier, rather than skipped."""
    out = [i for i in items if i.get_closest_marker("long") and not LONG]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [i for i in items if i not in out]


def pytest_generate_tests(metafunc):
    if "pg_version" in metafunc.fixturenames:
        matrix = any(m.name == "matrix" for m in metafunc.definition.iter_markers())
        versions = VERSIONS if matrix and "PGVERSION" not in os.environ else [env.default_version()]
        metafunc.parametrize("pg_version", versions, ids=[f"pg{v}" for v in versions], indirect=True, scope="module")


# ---- what a failing test shows -----------------------------------------------------------------------------------------

_servers: list = []  # every server of the running test: (what, its log since when)


def _watch(what, server):
    _servers.append((what, server, len(server.log())))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for what, server, since in _servers:
            if text := server.log()[since:].strip():
                report.sections.append((f"log of {what}", env.tail(text, 80)))
    return report


@pytest.fixture(autouse=True)
def _logs(request):
    """Remembers where the logs of the long-lived servers stood when the test began."""
    _servers.clear()
    for name in ("pg", "_kafka"):
        if name in request.fixturenames:
            server = request.getfixturevalue(name)
            _watch(name.strip("_"), server)
    yield


# ---- servers -------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def pg_version(request):
    version = request.param
    if reason := env.why_not(version):
        pytest.skip(reason)
    return version


@pytest.fixture(scope="module")
def _pg(request, pg_version):
    server = Postgres(pg_version, getattr(request.module, "PG_FLAVOUR", "normal"), getattr(request.module, "PG_CONF", None))
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def pg(_pg):
    """The module's server, running. A module may say PG_CONF = {...} and PG_FLAVOUR = "faults". It must not crash in a test
    that did not call pg.expect_crash()."""
    if not _pg.running:
        _pg.start()
    _pg.expect_crash()
    yield _pg
    _pg.assert_no_crash()


@pytest.fixture
def make_pg(pg_version):
    """make_pg(conf={...}, flavour=...) gives a started server of the test's own, in the test's version."""
    made = []

    def make(start=True, **kw):
        server = Postgres(kw.pop("version", pg_version), **kw)
        made.append(server)
        _watch(f"server {len(made)}", server)
        return server.start() if start else server
    yield make
    errors = []
    for server in reversed(made):
        try:
            server.assert_no_crash()
        except AssertionError as e:
            errors.append(e)
        try:
            server.close()
        except AssertionError as e:
            errors.append(e)
    if errors:
        raise errors[0]


@pytest.fixture
def make_db(pg):
    """make_db() gives a new database of the module's server, with the extension unless extension=False."""
    made = []

    def make(extension=True):
        name = f"db_{uuid.uuid4().hex[:10]}"
        pg.sql(f"CREATE DATABASE {name}")
        made.append(name)
        if extension:
            pg.sql("CREATE EXTENSION outbox", dbname=name)
        return Database(pg, name)
    yield make
    if pg.running:
        for name in made:
            pg.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def db(make_db):
    """A new database with the extension."""
    return make_db()


@pytest.fixture(scope="session")
def _kafka():
    if reason := kafka_module.available():
        pytest.fail(reason)
    broker = Kafka()
    try:
        yield broker.start()
    finally:
        broker.close()


@pytest.fixture
def kafka(_kafka):
    """The session's broker, running. A test may kill, freeze or restart it; it is put right afterwards."""
    yield _kafka
    _kafka.resume()
    if not _kafka.running:
        _kafka.start()


@pytest.fixture
def topic(kafka):
    """A new topic with one partition."""
    return kafka.create_topic()


@pytest.fixture
def make_kafka():
    """make_kafka(properties, sasl) gives a started broker of the test's own."""
    made = []

    def make(*args, start=True, **kw):
        broker = Kafka(*args, **kw)
        made.append(broker)
        _watch(f"broker {len(made)}", broker)
        return broker.start() if start else broker
    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def mock():
    """A mock broker of the test's own."""
    with Mock() as m:
        m.start()
        _watch("mock", m)
        yield m


@pytest.fixture
def make_hooks():
    """make_hooks(secrets, tls=..., http2=..., host=...) gives a web server of the test's own that listens."""
    made = []

    def make(*args, **kw):
        made.append(Webhooks(*args, **kw))
        return made[-1].start()
    yield make
    for server in made:
        server.close()


@pytest.fixture
def hooks(make_hooks):
    """A web server that verifies what comes."""
    return make_hooks()


@pytest.fixture(scope="session")
def authority():
    """Issues certificates."""
    return Authority()


# ---- chance ------------------------------------------------------------------------------------------------------------------

@pytest.fixture
def seed():
    """SEED from the environment, or a new one; a failing test shows it."""
    value = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**32))
    print(f"SEED={value}")
    return value


@pytest.fixture
def rng(seed):
    return random.Random(seed)
