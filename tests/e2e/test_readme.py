"""What README says in SQL runs as it stands there, and its tables name all there is."""

import re

from harness import env
from harness.wait import eventually

README = (env.REPO / "README.md").read_text()
# A block may have a line before it that readers do not see, with what it takes for granted.
BLOCKS = re.compile(r"(?:^<!-- first: (?P<first>.*) -->\n)?^```sql\n(?P<sql>.*?)^```$", re.M | re.S)


def table_under(heading, level="##"):
    """The first column of the tables below the heading, up to the next one: all names in backticks in it."""
    section = re.split(r"\n##+ ", README.split(f"\n{level} {heading}\n", 1)[1], maxsplit=1)[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}


def test_the_sql_runs_as_it_stands(make_db, kafka):
    topics = {"payments": kafka.create_topic()}
    db = make_db(extension=False)

    def here(sql):
        sql = sql.replace("localhost:9092", kafka.bootstrap)
        for name, topic in topics.items():
            sql = sql.replace(f"topic '{name}'", f"topic '{topic}'")
        # Roles are the whole server's.
        return re.sub(r"\b(app|dashboards)\b", rf"\1_{db.name}", sql)
    found = list(BLOCKS.finditer(README))
    assert len(found) > 10
    try:
        for block in found:
            if block["first"]:
                db.psql(block["first"])
            db.psql(here(block["sql"]))
        records = [r for r in kafka.consume(topics["payments"], until=2, timeout=30) if r.header("outbox-replay") is None]
        assert [r.header("event_type") for r in records] == ["authorized", "captured"]
        eventually(lambda: db.value("SELECT sum(pending) FROM outbox.lag") == 0, 10, "nothing pending")
    finally:
        for role in ("app", "dashboards"):
            db.sql(f"DROP OWNED BY {role}_{db.name}")
            db.sql(f"DROP ROLE {role}_{db.name}")


def test_the_settings_are_those_of_the_server(db):
    there = {row[0] for row in db.sql("SELECT name FROM pg_settings WHERE name LIKE 'outbox.%%'")}
    assert table_under("Settings") == there


def test_the_options_are_those_of_the_sink():
    source = (env.REPO / "src/core/options.cpp").read_text()
    there = set(re.findall(r'\{"(\w+)", set_\w+(?:, true)?\}', source))
    assert there and table_under("Sinks") == there
    servers = re.search(r"kServer\[\] = \{(.*?)\n\};", (env.REPO / "src/core/http_options.cpp").read_text(), re.S)[1]
    assert set(re.findall(r'^    \{"(\w+)"', servers, re.M)) <= table_under("Webhooks", "###")


def test_what_can_be_called_exists_with_these_arguments(db):
    for name in table_under("See and act"):
        call = re.fullmatch(r"outbox\.(\w+)(?:\((.*)\))?", name)
        if call[2] is None:
            db.sql(f"SELECT * FROM outbox.{call[1]} LIMIT 0")
            continue
        arguments = [a.split()[0] for a in call[2].split(", ") if a]
        signatures = [row[0][:len(arguments)] for row in db.sql("SELECT proargnames FROM pg_proc WHERE proname = %s"
                      " AND pronamespace = 'outbox'::regnamespace", [call[1]])]
        assert arguments in signatures, name
