"""The pictures: one SVG each, beside report.md."""

import statistics

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "outbox", "font.family": "sans-serif", "axes.spines.top": False,
                            "axes.spines.right": False, "figure.constrained_layout.use": True})

from matplotlib import pyplot  # noqa: E402

COLOURS = {"outbox": "#1f6feb", "bare librdkafka": "#8b949e", "Debezium": "#b35900", "by hand, as taught": "#d9a520", "by hand, tuned": "#8a6d00"}


def colour(name):
    return next((c for n, c in COLOURS.items() if name.startswith(n)), "#666666")


def median(rounds, name, figure):
    values = [r[name][figure] for r in rounds if figure in (r.get(name) or {})]
    return statistics.median(values) if values else None


def bars(title, pairs):
    """Horizontal bars of (name, value), each with its figure."""
    pairs = [(n, v) for n, v in pairs if v]
    if not pairs:
        return None
    figure, axes = pyplot.subplots(figsize=(7.2, 0.6 + 0.36 * len(pairs)))
    names, values = [n for n, _ in pairs], [v for _, v in pairs]
    drawn = axes.barh(names, values, color=[colour(n) for n in names], height=0.7)
    axes.bar_label(drawn, [f"{v:,.0f}" if v >= 100 else f"{v:.2g}" for v in values], padding=4)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_title(title, loc="left", fontsize=11)
    axes.margins(x=0.12)
    return figure


def lines(title, xlabel, ylabel, series, log=False):
    """`series`: name to (x, y)."""
    series = {n: s for n, s in series.items() if s and len(s[0])}
    if not series:
        return None
    figure, axes = pyplot.subplots(figsize=(7.2, 3))
    for name, (x, y) in series.items():
        axes.plot(x, y, label=name, color=colour(name), linewidth=2)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if log:
        axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
    axes.set_title(title, loc="left", fontsize=11)
    axes.legend(frameon=False)
    return figure


def drain(raw):
    rounds = raw["rounds"]
    names = sorted({n for r in rounds for n in r}, key=lambda n: -(median(rounds, n, "rate") or 0))
    bare = next((n for n in names if n.startswith("bare")), None)
    names = [n for n in names if not n.startswith("bare") or n == bare]
    return "drain", bars("Drain of a backlog: events a second", [(n, median(rounds, n, "rate")) for n in names])


def latency(raw):
    rounds = raw["rounds"]
    names = list(dict.fromkeys(n for r in rounds for n in r))
    return "latency", bars("COMMIT to consumer at 500 events a second: median, ms", sorted(((n, median(rounds, n, "p50")) for n in names), key=lambda p: p[1] or 0))


def old_snapshot(raw):
    series = {}
    for name in dict.fromkeys(n for r in raw["rounds"] for n in r):
        tenths = [r[name]["tenths"] for r in raw["rounds"] if r.get(name)]
        series[name] = (range(1, 11), [statistics.median(t) for t in zip(*tenths, strict=True)])
    return "old-snapshot", lines("A drain while another session holds an old snapshot", "tenth of the backlog", "events/s", series)


def following(raw):
    rounds = raw.get("flat out, asynchronous commit") or raw.get("flat out") or []
    last = next((r for r in reversed(rounds) if r), {})
    return "following", lines("Eight clients write flat out: events that wait", "seconds", "events",
                              {n: (f["times"], f["pending"]) for n, f in last.items() if "times" in f}, log=True)


PLOTS = {"drain": drain, "latency": latency, "old snapshot": old_snapshot, "following": following}


def draw(out, measured):
    """Draws what was measured; returns the files."""
    files = []
    for name, plot in PLOTS.items():
        if not measured.get(name):
            continue
        title, figure = plot(measured[name])
        if figure is not None:
            figure.savefig(out / f"{title}.svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
            pyplot.close(figure)
            files.append(f"{title}.svg")
    return files
