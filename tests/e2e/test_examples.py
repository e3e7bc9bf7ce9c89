"""docs/examples: what stands there runs, and does what the pages say. (The pages' SQL is run by test_docs.py.) Consumers meet real duplicates: a relay that was killed between the broker's
acknowledgement and its own record sends its batch again."""
import json
import os
import random
import re
import shutil
import subprocess

import pytest
from conftest import Database
from harness import env
from harness.toolchains import cached, maven, need, python, run
from harness.wait import eventually
from harness.workload import Killer, make_sink, nothing_pending
from test_crash_points import set_fault

PG_FLAVOUR = "faults"
DOCS = env.REPO / "docs"
EXAMPLES = DOCS / "examples"
BATCH, EVENTS, KEYS = 100, 250, 7


# ---- the pages ---------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("page", ["consumers", "tracing"])
def test_a_page_shows_its_examples_as_they_are(page):
    shown = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", (DOCS / f"{page}.md").read_text(), re.M | re.S)
    assert shown and all(text == (DOCS / file).read_text() for file, text in shown)


# ---- tracing -----------------------------------------------------------------------------------------------------------------

def test_a_trace_goes_on_behind_the_topic(db, kafka, topic):
    """With the real SDK of OpenTelemetry: the consumer's span is a child of the writer's, and the baggage is there."""
    make_sink(db, kafka, topic)
    db.sql("CREATE TABLE payments (id text PRIMARY KEY, status text NOT NULL); INSERT INTO payments VALUES ('pay-1', 'authorized')")
    done = subprocess.run([python(EXAMPLES / "python/requirements.txt"), EXAMPLES / "python/tracing.py"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "BROKERS": kafka.bootstrap, "TOPIC": topic, "DSN": db.pg.dsn(db.name), "OTEL_SDK_DISABLED": "false"})
    assert done.returncode == 0, done.stderr
    decoder, text, spans = json.JSONDecoder(), done.stdout.strip(), []
    while text:
        span, end = decoder.raw_decode(text)
        spans.append(span)
        text = text[end:].strip()
    writer, consumer = spans
    assert (writer["name"], consumer["name"]) == ("capture payment", "send receipt")
    assert writer["context"]["trace_id"] == consumer["context"]["trace_id"]
    assert consumer["parent_id"] == writer["context"]["span_id"] != consumer["context"]["span_id"]
    assert consumer["attributes"]["user"] == "alice"


# ---- consumers ---------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def payments(_pg, _kafka):
    """A topic on which a batch came twice, and what the payments add up to when each event counts once. The last event has a key of its own."""
    _pg.sql("CREATE DATABASE payments")
    _pg.sql("CREATE EXTENSION outbox", dbname="payments")
    db, topic = Database(_pg, "payments"), _kafka.create_topic()
    set_fault(_pg, "after_acknowledgement")
    try:
        make_sink(db, _kafka, topic, batch_size=BATCH)
        db.sql("INSERT INTO outbox.events (aggregate_id, event_type, payload)"
               f" SELECT 'pay-' || g % {KEYS}, 'paid', json_build_object('amount', g) FROM generate_series(1, {EVENTS}) g")
        _kafka.consume(topic, until=BATCH)
        Killer(db, random.Random(1)).crash()
    finally:
        set_fault(_pg, "")
    nothing_pending(db)
    db.sql("SELECT outbox.add_event('last', 'paid', '{\"amount\": 1}')")
    nothing_pending(db)
    assert len(_kafka.consume(topic)) == EVENTS + BATCH + 1, "a batch came twice"
    totals = dict(db.sql("SELECT aggregate_id, sum((payload->>'amount')::int)::int FROM outbox.events GROUP BY 1"))
    db.sql("DROP SERVER kafka CASCADE")
    return topic, totals


@pytest.fixture
def shop(db, kafka, payments):
    """The consumer's database, as the page has it, and the environment of the examples."""
    db.sql("CREATE TABLE totals (payment text PRIMARY KEY, total numeric NOT NULL);"
           " CREATE TABLE inbox (consumer text, event_id uuid, claimed_at timestamptz DEFAULT now(), PRIMARY KEY (consumer, event_id))")
    db.environ = {"BROKERS": kafka.bootstrap, "TOPIC": payments[0], "DSN": f"postgresql://postgres@127.0.0.1:{db.pg.port}/{db.name}",
                  "JDBC_URL": f"jdbc:postgresql://127.0.0.1:{db.pg.port}/{db.name}?user=postgres"}
    return db


def added_up(shop, argv, cwd):
    """What the consumer has made of the topic when it comes to the last event."""
    log = cwd / "log"
    with log.open("w") as out:
        program = subprocess.Popen([str(a) for a in argv], cwd=cwd, env={**os.environ, **shop.environ}, stdout=out, stderr=out)
    try:
        def last():
            assert program.poll() is None, log.read_text()
            return shop.value("SELECT total FROM totals WHERE payment = 'last'")
        eventually(lambda: program.poll() is not None or last(), 90, lambda: f"the last event: {env.tail(log.read_text())}")
        last()
    finally:
        program.terminate()
        try:
            program.wait(20)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
    return {payment: int(total) for payment, total in shop.sql("SELECT payment, total FROM totals")}


def run_python(shop, tmp_path, source):
    (tmp_path / "consumer.py").write_text(source)
    return added_up(shop, [python(EXAMPLES / "python/requirements.txt"), "consumer.py"], tmp_path)


def test_python(shop, payments, tmp_path):
    assert run_python(shop, tmp_path, (EXAMPLES / "python/consumer.py").read_text()) == payments[1]


def test_a_consumer_that_does_not_claim_adds_up_to_more(shop, payments, tmp_path):
    """The tests beside this one would see it."""
    source, n = re.subn(r"claimed = .*", "claimed = True", (EXAMPLES / "python/consumer.py").read_text().replace("totals-python", "careless"))
    assert n == 1
    wrong = run_python(shop, tmp_path, source)
    assert wrong != payments[1] and sum(wrong.values()) > sum(payments[1].values())


def test_java(shop, payments, tmp_path):
    pom, source = (EXAMPLES / "java" / f for f in ("pom.xml", "Totals.java"))
    jars = maven("java-consumer", pom)

    def compile(path):
        run(["javac", "-d", path, "-cp", f"{jars}/*", source], path)
    classes = cached("java-Totals", compile, source.read_text(), pom.read_text())
    argv = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp", f"{classes}:{jars}/*", "Totals"]
    assert added_up(shop, argv, tmp_path) == payments[1]


def test_go(shop, payments, tmp_path):
    need("go")
    files = {f: (EXAMPLES / "go" / f).read_text() for f in ("go.mod", "go.sum", "main.go")}

    def make(path):
        for f, text in files.items():
            (path / f).write_text(text)
        run(["go", "build", "-o", "totals", "."], path, GOFLAGS="-mod=mod", GOTOOLCHAIN="local")
    assert added_up(shop, [cached("go-consumer", make, *files.values()) / "totals"], tmp_path) == payments[1]


def test_node(shop, payments, tmp_path):
    need("node", "npm")
    package = (EXAMPLES / "node/package.json").read_text()

    def make(path):
        (path / "package.json").write_text(package)
        run(["npm", "install", "--no-audit", "--no-fund", "--silent", "--ignore-scripts"], path)
    modules = cached("node-consumer", make, package)
    shutil.copy(EXAMPLES / "node/consumer.js", tmp_path)
    shutil.copy(modules / "package.json", tmp_path)
    (tmp_path / "node_modules").symlink_to(modules / "node_modules")  # Node finds its modules beside the program
    assert added_up(shop, ["node", "consumer.js"], tmp_path) == payments[1]
