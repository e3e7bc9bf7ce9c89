"""docs/: what stands in a block is run, in the page's order, and says what the page shows; each link leads somewhere. How a page
says what a block needs is told in harness/pages.py."""

import re

import pytest
from harness import env
from harness.pages import DOCS, Reader, blocks

PAGES = sorted(DOCS.glob("*.md"))
# Their blocks are programs that work together: a test of its own runs each of them.
ELSEWHERE = {"webhooks.md": "test_webhooks_page.py"}
RUN = [p for p in PAGES if p.name not in ELSEWHERE]
WITH_LINKS = [*PAGES, *(env.REPO / p for p in ("README.md", "src/README.md", "tests/README.md", "bench/README.md", "SECURITY.md", "CHANGELOG.md",
                                               "CONTRIBUTING.md"))]
# Why a block may be left out.
REASONS = {"it installs packages", "it restarts the server", "it downloads Kafka", "it needs a second machine", "it needs a configuration of your own",
           "it is run as root", "it is what you have had so far"}
# Languages of blocks that nobody runs from a shell; tests of their own run some of them.
SHOWN = {"text", "ini", "json", "properties", "yaml", "python", "java", "go", "js", "promql", ""}

PG_CONF = {"max_worker_processes": 16, "log_min_messages": "warning"}


@pytest.fixture(scope="module")
def tools():
    """What lies on a reader's machine and not on ours: Kafka's scripts, and sudo, which here changes nobody."""
    where = env.temp_dir("tools")
    python = env.ENV / "venv/bin/python"
    scripts = {
        "sudo": """#!/bin/sh
while [ "${1#-}" != "$1" ]; do [ "$1" = -u ] && shift; shift; done
exec "$@"
""",
        # Kafka's own needs a jar that nothing else here does, and seconds.
        "kafka-topics.sh": f"""#!{python}
import argparse
from confluent_kafka.admin import AdminClient, NewTopic
options = argparse.ArgumentParser()
options.add_argument("--bootstrap-server"), options.add_argument("--create", action="store_true"), options.add_argument("--topic")
options = options.parse_args()
assert options.create
admin = AdminClient({{"bootstrap.servers": options.bootstrap_server}})
admin.create_topics([NewTopic(options.topic, 1, 1)])[options.topic].result(30)
print(f"Created topic {{options.topic}}.")
"""}
    for name, script in scripts.items():
        (where / name).write_text(script)
        (where / name).chmod(0o755)
    yield where
    env.remove_tree(where)


@pytest.fixture
def reader(request, pg, tools):
    """A reader of one page, with a database `shop` and a broker of its own; roles, settings and topics go with the page."""
    page = request.param
    if pg.root:
        pytest.skip("a reader has the host's PostgreSQL")
    first = page.read_text().partition("\n")[0]
    wants = set(re.findall(r"\w+", first.removeprefix("<!-- test:"))) if first.startswith("<!-- test:") else set()
    if "kafka" in wants:
        broker = request.getfixturevalue("kafka")
        before = broker.topics()
    else:
        broker = request.getfixturevalue("mock")
    pg.sql("CREATE DATABASE shop")
    try:
        if "bare" not in wants:
            pg.sql("CREATE EXTENSION outbox", dbname="shop")
        yield Reader(pg, "shop", broker, tools)
    finally:
        pg.sql("ALTER SYSTEM RESET ALL")
        pg.reload()
        for role, in pg.sql("SELECT rolname FROM pg_roles WHERE oid >= 16384"):
            pg.sql(f'DROP OWNED BY "{role}"', dbname="shop")
            pg.sql(f'DROP ROLE "{role}"')
        pg.sql("DROP DATABASE shop WITH (FORCE)")
        if "kafka" in wants:
            for topic in broker.topics() - before:
                broker.delete_topic(topic)


@pytest.mark.parametrize("reader", RUN, ids=lambda p: p.stem, indirect=True)
def test_each_block_of_the_page_runs(reader, request):
    page = request.node.callspec.params["reader"]
    for block in blocks(page):
        if block.kind in ("sql", "sh") and block.runs:
            reader.run(block)


def test_what_is_not_run_says_why():
    there = [b for page in PAGES for b in blocks(page)]
    assert {b.kind for b in there} <= {"sql", "sh"} | SHOWN
    out = [b for b in there if not b.runs]
    assert {b.note("not run") for b in out} <= REASONS
    can = [b for b in there if b.kind in ("sql", "sh")]
    print(f"{len(can)} blocks, {len(out)} of them not run")
    assert len(out) <= len(can) / 5


def test_a_page_that_is_run_elsewhere_is():
    for page, test in ELSEWHERE.items():
        assert f"docs/{page}" in (env.REPO / "tests/e2e" / test).read_text()


def anchors(page):
    """As GitHub makes them of headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.*?)\s*$", text, re.M):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        found.add(name if name not in found else next(f"{name}-{n}" for n in range(1, 99) if f"{name}-{n}" not in found))
    return found


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda p: str(p.relative_to(env.REPO)))
def test_each_link_leads_somewhere(page):
    text = re.sub(r"^```.*?^```$|`[^`\n]+`", "", page.read_text(), flags=re.M | re.S)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    bad = []
    for link in links:
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            bad.append(link)
    assert not bad, f"{page.name}: {bad}"


def test_the_index_has_each_page_once():
    index = (DOCS / "README.md").read_text()
    listed = re.findall(r"\]\(([\w.-]+\.md)\)", index)
    assert sorted(set(listed)) == sorted(p.name for p in PAGES if p.name != "README.md")
