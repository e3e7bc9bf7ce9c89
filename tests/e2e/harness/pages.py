"""The pages of docs/ as a reader works through them: each block of SQL by psql, each of shell by bash, in the page's order.

What a page may say around a block, in HTML comments on the lines before it, which readers do not see:

    <!-- not run: why -->      the block is for another machine; the reasons are in test_docs.py
    <!-- first: SQL -->        what the block takes for granted
    <!-- mock: command -->     something happens to the (mock) broker, see tests/mock/mock_broker.cpp
    <!-- soon -->              what the block shows comes after a moment: it is run again until it does
    <!-- exact -->             the output is compared byte by byte, but for times
    <!-- as: role -->          psql as this role

A block `output` behind another one is what that prints. In the first line of a page, <!-- test: kafka, bare --> asks for a real broker and
for a database without the extension.
"""

import os
import re
import subprocess
from dataclasses import dataclass, field

from . import env
from .wait import eventually

DOCS = env.REPO / "docs"
FENCE = re.compile(r"(?P<notes>(?:^<!-- .*? -->\n)*)^```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^```$", re.M | re.S)
NOTE = re.compile(r"^<!-- ([\w ]+?)(?:: (.*?))? -->$", re.M)

# What differs from run to run. A column's width follows what stands in it, so runs of spaces and dashes count as one.
VARIES = [
    (r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d(?::\d\d)?|Z)?", "TIME"),
    (r"\b\d\d:\d\d:\d\d(?:\.\d+)?", "SPAN"),
    (r"\b\d+ (?:bytes|kB|MB)\b", "SIZE"),
    (r"-{2,}", "-"),
    (r" +", " "),
]
EXACT = [(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "TIME")]


@dataclass
class Block:
    page: str
    kind: str
    text: str
    line: int
    notes: list = field(default_factory=list)
    output: str | None = None
    output_at: tuple | None = None  # where it stands in the page

    def note(self, name):
        """What the note says, "" if it says nothing, None where there is none."""
        return next((text or "" for n, text in self.notes if n == name), None)

    @property
    def runs(self):
        return self.note("not run") is None


def blocks(path):
    """The blocks of a page, each `output` with the one before it."""
    page, found = path.read_text(), []
    for m in FENCE.finditer(page):
        notes = NOTE.findall(m["notes"])
        if m["kind"] == "output":
            assert found and found[-1].kind in ("sql", "sh"), f"{path.name}: an output of what?"
            found[-1].output, found[-1].output_at = m["text"], m.span("text")
        else:
            found.append(Block(path.name, m["kind"], m["text"], page[:m.start("text")].count("\n"), notes))
    return found


def same(shown, said, exact=False):
    """Whether the page shows what was said. In a page `…` stands for anything."""
    for pattern, name in (EXACT if exact else VARIES):
        shown, said = re.sub(pattern, name, shown), re.sub(pattern, name, said)
    if not exact:
        shown, said = ("\n".join(line.strip() for line in t.strip().splitlines()) for t in (shown, said))
    return re.fullmatch(".*?".join(map(re.escape, shown.split("…"))), said, re.S) is not None


class Reader:
    """Somebody at the machine of server and broker. `tools` is a directory of programs that come first: kafka-topics.sh, sudo."""

    def __init__(self, pg, dbname, broker, tools=None):
        self.pg, self.dbname, self.broker = pg, dbname, broker
        self.path = ":".join(filter(None, [str(tools or ""), str(pg.tree / f"lib/postgresql/{pg.version}/bin"), "/usr/bin:/bin"]))

    def here(self, text):
        return text.replace("localhost:9092", self.broker.bootstrap)

    def there(self, text):
        return text.replace(self.broker.bootstrap, "localhost:9092").replace(self.broker.bootstrap.replace("localhost", "127.0.0.1"), "localhost:9092")

    def _run(self, argv, text):
        environ = {"PATH": self.path, "LC_ALL": "C.UTF-8", "HOME": str(self.pg.dir), "TZ": "UTC", "PGHOST": "127.0.0.1",
                   "PGPORT": str(self.pg.port), "PGUSER": "postgres", "PGDATABASE": self.dbname, "PSQLRC": "/dev/null"}
        done = subprocess.run(argv, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, env=environ,
                              cwd=str(self.pg.dir))
        return done.returncode, self.there(done.stdout)

    def sql(self, text, user="postgres"):
        code, said = self._run(["psql", "-X", "-v", "ON_ERROR_STOP=1", "-U", user, "-f", "-"], self.here(text))
        return code, re.sub(r"^psql:<stdin>:\d+: ", "", said, flags=re.M)

    def sh(self, text):
        return self._run(["bash", "-euo", "pipefail", "-s"], self.here(text))

    def run(self, block):
        """Runs a block; returns what it said. A block that shows an error has to make it, and no other has to."""
        for name, text in block.notes:
            if name == "first":
                code, said = self.sql(text)
                assert code == 0, f"{block.page}:{block.line}: {text} gave\n{said}"
            elif name == "mock":
                self.broker.cmd(text)

        def once():
            return self.sql(block.text, block.note("as") or "postgres") if block.kind == "sql" else self.sh(block.text)

        def good(code, said):
            fails = block.output is not None and "ERROR: " in block.output
            if block.output == "" and block.note("soon") is not None:  # something must come
                return False
            return (code != 0) == fails and (block.output is None or same(block.output, said, block.note("exact") is not None))
        last = []

        def tried():
            last[:] = [once()]
            return good(*last[0])
        if block.note("soon") is not None:
            try:
                eventually(tried, 4 if os.environ.get("DOCS_WRITE") else 30, "it", interval=0.1)
            except AssertionError:
                pass
        else:
            tried()
        code, said = last[0]
        if os.environ.get("DOCS_WRITE") and block.output is not None and not good(code, said) and (block.kind == "sql" or code == 0):
            write(block, said)
        else:
            assert good(code, said), (f"docs/{block.page}:{block.line}\n{block.text}gave {code} and said\n{said}"
                                      + ("" if block.output is None else f"where the page shows\n{block.output}"))
        return said


def write(block, said):
    """DOCS_WRITE=1: what a block said goes into the page. Look at it before you commit it."""
    path = DOCS / block.page
    page = path.read_text()
    fresh = next(b for b in blocks(path) if (b.text, b.kind) == (block.text, block.kind) and b.output == block.output)
    begin, end = fresh.output_at
    said = "\n".join(line.rstrip() for line in said.rstrip().splitlines())
    path.write_text(page[:begin] + said.removeprefix("\n") + "\n" + page[end:])
