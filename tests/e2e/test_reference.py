"""docs/reference.md has everything that the extension has, as it is, and nothing that there is not."""

import re

from harness import env
from harness.pages import DOCS

TEXT = (DOCS / "reference.md").read_text()
INTERNAL = TEXT.split("\n## Internal\n", 1)[1]


def names(text):
    return set(re.findall(r"`([^`\n]+)`", text))


def section(heading, level):
    """What stands under a heading, up to the next one of its level or above."""
    body = TEXT.split(f"\n{'#' * level} {heading}\n", 1)[1]
    return re.split(rf"\n#{{2,{level}}} ", body)[0]


def table(heading, level):
    """The rows of the first table under a heading, as lists of cells."""
    rows = re.findall(r"^\| (.*) \|$", section(heading, level), re.M)
    return [row.split(" | ") for row in rows[2:]]


def relations(db):
    return {name: columns for name, columns in db.sql("""
        SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition AND NOT a.attisdropped
        GROUP BY c.relname""")}


def test_every_table_and_view_is_there_with_its_columns(db):
    there = relations(db)
    internal = {n.removeprefix("outbox.") for n in names(INTERNAL)}
    assert {n for n in there if f"\n### `outbox.{n}`\n" not in TEXT} == set(there) & internal
    for name in set(there) - internal:
        text = section(f"`outbox.{name}`", 3)
        assert not [c for c in there[name] if c not in names(text)], f"columns of {name}"


def test_every_column_in_a_table_of_columns_exists(db):
    there = relations(db)
    for name in re.findall(r"\n### `outbox\.(\w+)`\n", TEXT):
        rows = re.findall(r"^\| (.*) \|$", section(f"`outbox.{name}`", 3), re.M)
        if rows and rows[0].startswith("column"):
            assert {c for row in rows[2:] for c in names(row.split(" | ")[0])} <= set(there[name]), name


def test_every_function_is_there_as_it_is_called(db):
    there = db.sql("""SELECT proname, pg_get_function_arguments(oid) FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace""")
    internal = {n.removeprefix("outbox.") for n in names(INTERNAL)}
    headings = "\n".join(re.findall(r"^#### (.*)$", TEXT, re.M))
    for name, arguments in there:
        if name in internal or name == "add_event":  # whose signature stands in a block
            continue
        # As people write it: without OUT, short names of types.
        arguments = ", ".join(a for a in re.split(r", (?![^']*'(?:[^']*'[^']*')*[^']*$)", arguments) if not a.startswith("OUT "))
        arguments = arguments.replace("timestamp with time zone", "timestamptz")
        arguments = re.sub(r"::\w+(\[\])?", "", arguments)
        assert f"`outbox.{name}({arguments})" in headings, f"outbox.{name}({arguments})"
    assert "#### `outbox.add_event`" in TEXT and sum(name == "add_event" for name, _ in there) == 12


def test_what_is_named_exists(db):
    relation = set(relations(db)) | {r for r, in db.sql("SELECT relname FROM pg_class WHERE relnamespace = 'outbox'::regnamespace")}
    function = {r for r, in db.sql("SELECT proname FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace")}
    setting = {r for r, in db.sql("SELECT split_part(name, '.', 2) FROM pg_settings WHERE name LIKE 'outbox.%%'")}
    topics = {"event", "events"}
    for page in DOCS.glob("*.md"):
        text = re.sub(r"https?://\S+", "", page.read_text())
        named = set(re.findall(r"(?<![\w./-])outbox\.([a-z]\w+)(?![\w/-]|\.[a-z])", text)) - {"md", "instance"}
        assert named <= relation | function | setting | topics | {"test"}, page.name


def test_the_settings_are_those_of_the_server(db):
    rows = table("Settings", 2)
    there = dict(db.sql("SELECT name, (SELECT setting FROM pg_settings t WHERE t.name = s.name) FROM pg_settings s WHERE name LIKE 'outbox.%%'"))
    assert {name for row in rows for name in names(row[0])} == set(there)
    for row in rows:
        name, = names(row[0])
        default = row[1].strip("`")
        # As the server would print it.
        shown = db.value("SELECT boot_val FROM pg_settings WHERE name = %s", [name])
        with db.connect() as c:
            if default == "empty":
                assert shown == ""
            else:
                unit = c.execute("SELECT coalesce(unit, '') FROM pg_settings WHERE name = %s", [name]).fetchone()[0]
                seconds = {"s": 1, "ms": 0.001}.get(unit)
                same = (default == shown if seconds is None and unit != "B" else
                        int(default.removesuffix("B")) == int(shown) if unit == "B" else
                        c.execute("SELECT extract(epoch FROM %s::interval)", [default]).fetchone()[0] == float(shown) * seconds)
                assert same, f"{name}: {default} is {shown} {unit}"


def test_the_options_are_those_of_the_sinks():
    own = re.findall(r'^    \{"(\w+)", set_\w+(?:, (true))?\},', (env.REPO / "src/core/options.cpp").read_text(), re.M)
    assert {n for row in table("Kafka", 3) for n in names(row[0])} == {name for name, _ in own}
    source = (env.REPO / "src/core/http_options.cpp").read_text()
    server, mapping = ({n for n in re.findall(r'^    \{"(\w+)", ', source.split(f"constexpr Option {kind}[] = {{")[1].split("\n};")[0], re.M)}
                       for kind in ("kServer", "kMapping"))
    there = names(section("HTTP", 3))
    wanted = server | mapping | {name for name, kafka_only in own if not kafka_only}
    assert wanted <= there, wanted - there
    assert {n for row in table("HTTP", 3) for n in names(row[0])} <= wanted
