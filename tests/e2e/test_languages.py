"""README, "From your language": the lines that stand there, put into a small program each and run. What a program needs is
fetched by its language's own client, pinned, into the cache; where the language is not installed the test is skipped."""

import json
import os
import re
import subprocess
import textwrap

import pytest
from harness import env
from harness.toolchains import cached, maven, need, python, run

HERE = env.REPO / "tests/languages"
BLOCK = re.compile(r"^```(\w+) ([\w-]+)\n(.*?)^```$", re.M | re.S)
EXAMPLES = {name: text for _, name, text in BLOCK.findall((env.REPO / "README.md").read_text())}


def program(path):
    """The program with README's lines in place of its comment `README: name`."""
    return re.sub(r"^([ \t]*)(?:#|//) README: ([\w-]+)\n",
                  lambda m: textwrap.indent(EXAMPLES[m[2]], m[1]), (HERE / path).read_text(), flags=re.M)


def run_node(path, source, db):
    """Node finds its modules beside the program."""
    file = path / f"example-{os.getpid()}.js"
    file.write_text(source)
    try:
        run(["node", file], path, **db.environ)
    finally:
        file.unlink()


@pytest.fixture
def shop(db):
    """A database with a payment, and a role that may write payments and events and nothing else."""
    db.sql("CREATE TABLE payments (id text PRIMARY KEY, status text NOT NULL)")
    db.sql("INSERT INTO payments VALUES ('pay-1', 'authorized')")
    role = f"app_{db.name}"
    db.sql(f"CREATE ROLE {role} LOGIN")
    db.sql(f"GRANT SELECT, UPDATE ON payments TO {role}")
    db.sql(f"SELECT outbox.grant_writer('{role}')")
    db.environ = {"PGHOST": "127.0.0.1", "PGPORT": str(db.pg.port), "PGDATABASE": db.name, "PGUSER": role,
                  "DSN": f"host=127.0.0.1 port={db.pg.port} dbname={db.name} user={role}",
                  "URL": f"postgresql://{role}@127.0.0.1:{db.pg.port}/{db.name}",
                  "URL_WITHOUT_USER": f"postgresql://127.0.0.1:{db.pg.port}/{db.name}"}
    yield db
    db.sql(f"DROP OWNED BY {role}")
    db.sql(f"DROP ROLE {role}")


def check_capture(db):
    """One event, as it should be, written by the transaction that captured the payment."""
    rows = db.sql("SELECT aggregate_type, aggregate_id, event_type, payload::text FROM outbox.events")
    assert len(rows) == 1
    assert tuple(rows[0])[:3] == ("payment", "pay-1", "captured") and json.loads(rows[0][3]) == {"amount": 42}
    assert db.value("SELECT p.status = 'captured' AND p.xmin::text = e.xid::text FROM payments p, outbox.events e")


# ---- Python ------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["psycopg", "sqlalchemy", "django"])
def test_python(shop, name, tmp_path):
    (tmp_path / "example.py").write_text(program(f"python/{name}_example.py"))
    run([python(HERE / "python/requirements.txt"), "example.py"], tmp_path, **shop.environ)
    check_capture(shop)


# ---- Java --------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["Jdbc", "Spring", "Hibernate"])
def test_java(shop, name):
    pom = HERE / "java/pom.xml"
    jars = maven("java", pom)
    source = program(f"java/{name}Example.java")

    def compile(path):
        (path / f"{name}Example.java").write_text(source)
        run(["javac", "-cp", f"{jars}/*", f"{name}Example.java"], path)
    classes = cached(f"java-{name}", compile, source, pom.read_text())
    run(["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{classes}:{jars}/*", f"{name}Example"], classes, **shop.environ)
    check_capture(shop)


# ---- Go ----------------------------------------------------------------------------------------------------------------------

def test_go(shop):
    need("go")
    modules = [(HERE / "go" / f).read_text() for f in ("go.mod", "go.sum")]
    source = program("go/main.go")

    def make(path):
        for f, text in zip(("go.mod", "go.sum"), modules):
            (path / f).write_text(text)
        (path / "main.go").write_text(source)
        run(["go", "build", "-o", "example", "."], path, GOFLAGS="-mod=mod", GOTOOLCHAIN="local")
    run([cached("go", make, source, *modules) / "example"], "/", **shop.environ)
    check_capture(shop)


# ---- Node --------------------------------------------------------------------------------------------------------------------

def test_node_postgres(shop):
    need("node", "npm")
    package = (HERE / "node/pg.package.json").read_text()

    def make(path):
        (path / "package.json").write_text(package)
        run(["npm", "install", "--no-audit", "--no-fund", "--silent", "--ignore-scripts"], path)
    run_node(cached("node-pg", make, package), program("node/pg_example.js"), shop)
    check_capture(shop)


@pytest.mark.long
def test_prisma(shop):
    """In the long tier only: its packages take 300 MB."""
    need("node", "npm")
    package, schema = ((HERE / "node" / f).read_text() for f in ("prisma.package.json", "schema.prisma"))

    def make(path):
        (path / "package.json").write_text(package)
        (path / "schema.prisma").write_text(schema)
        run(["npm", "install", "--no-audit", "--no-fund", "--silent", "--ignore-scripts"], path)
        # Its engine for migrations would be downloaded, and is not needed to generate a client.
        run(["npx", "prisma", "generate", "--schema", "schema.prisma"], path, PRISMA_SCHEMA_ENGINE_BINARY="/bin/true",
            CHECKPOINT_DISABLE="1", PRISMA_HIDE_UPDATE_MESSAGE="1")
    run_node(cached("node-prisma", make, package, schema), program("node/prisma_example.js"), shop)
    check_capture(shop)


# ---- Ruby --------------------------------------------------------------------------------------------------------------------

def test_activerecord(shop, tmp_path):
    need("ruby")
    if subprocess.run(["ruby", "-e", "require 'active_record'; require 'pg'"], capture_output=True).returncode:
        pytest.skip("no ActiveRecord here (Debian: ruby-activerecord, ruby-pg)")
    (tmp_path / "example.rb").write_text(program("ruby/activerecord_example.rb"))
    run(["ruby", "example.rb"], tmp_path, **shop.environ)
    check_capture(shop)
