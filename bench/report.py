"""Lines of the tables, medians and ratios, and the files that are written: report.md and raw.json."""

import json
import os
import platform
import statistics
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Row:
    """One comparison: `mine` and `other` are lists of a figure a round, and the ratio is taken round by round."""

    figure: str
    what: str
    mine: list
    other: list
    unit: str
    aim: float | None = None
    at_most: bool = False  # else: at least
    # Where the ratio is not mine : other but the figure itself (seconds, say).
    itself: bool = False

    def ratios(self):
        if self.itself:
            return list(self.mine)
        return [a / b for a, b in zip(self.mine, self.other, strict=True) if b]

    def verdict(self):
        ratios = self.ratios()
        if not ratios:
            return "not measured"
        if self.aim is None:
            return ""
        median = statistics.median(ratios)
        return "reached" if (median <= self.aim if self.at_most else median >= self.aim) else "**missed**"


def pairs(rounds, mine, other, figure):
    """The figures of two contestants, from those rounds in which both have one."""
    both = [r for r in rounds if figure in (r.get(mine) or {}) and figure in (r.get(other) or {})]
    return [r[mine][figure] for r in both], [r[other][figure] for r in both]


def best(rounds, names, figure):
    """The contestant of the highest median."""
    found = {n: [r[n][figure] for r in rounds if figure in (r.get(n) or {})] for n in names}
    found = {n: statistics.median(v) for n, v in found.items() if v}
    return max(found, key=found.get) if found else names[0]


def order(figure):
    """P1, P2, ... P11, H1."""
    return figure[0] != "P", int(figure[1:])


def number(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(rows):
    out = ["| | figure | outbox | the other | ratio (lowest to highest round) | aim | |", "| --- | --- | ---: | ---: | ---: | --- | --- |"]
    for r in rows:
        ratios = r.ratios()
        mine = f"{number(statistics.median(r.mine))} {r.unit}" if r.mine else "-"
        other = f"{number(statistics.median(r.other))} {r.unit}" if r.other else "-"
        ratio = f"{number(statistics.median(ratios))} ({number(min(ratios))} to {number(max(ratios))})" if ratios else "-"
        if r.itself:
            mine, ratio = ratio + (f" {r.unit}" if ratios else ""), ""
        aim = "" if r.aim is None else f"{'at most' if r.at_most else 'at least'} {r.aim:g}"
        out.append(f"| {r.figure} | {r.what} | {mine} | {other} | {ratio} | {aim} | {r.verdict()} |")
    return "\n".join(out)


def medians(title, rounds, unit_of):
    """A table of the medians of all contestants; unit_of: the figures that it shows and their headings."""
    names = list(dict.fromkeys(n for r in rounds for n in r))
    if not names:
        return ""
    out = [f"### {title}", "", "| | " + " | ".join(unit_of.values()) + " |", "| --- |" + " ---: |" * len(unit_of)]
    for n in names:
        cells = []
        for figure in unit_of:
            values = [r[n][figure] for r in rounds if figure in (r.get(n) or {})]
            cells.append(number(statistics.median(values)) if values else "")
        out.append(f"| {n} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def machine():
    cpu = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "?")
    memory = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_gb": round(memory / 2**20), "system": platform.platform()}


def write(out, raw, modules):
    """report.md and raw.json; returns the report's text."""
    rows, tables = [], []
    for name, module in modules.items():
        if raw["measured"].get(name):
            rows += module.rows(raw["measured"][name])
            tables += [medians(*t) for t in module.tables(raw["measured"][name])]
    m = raw["machine"]
    head = (f"PostgreSQL {raw['postgres']}, Apache Kafka, librdkafka {raw['librdkafka']}, all on one machine and loopback: {m['cores']} cores "
            f"({m['cpu']}), {m['memory_gb']} GB, {m['system']}. Medians of {raw['options']['rounds']} rounds. Absolute figures vary with the machine; "
            "ratios are the claim.")
    rows.sort(key=lambda r: order(r.figure))
    text = "\n".join([head, "", table(rows), ""] + [t + "\n" for t in tables])
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.md").write_text(text)
    (out / "raw.json").write_text(json.dumps(raw, indent=1, default=str))
    return text
