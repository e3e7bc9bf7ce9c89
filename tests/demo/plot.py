"""The picture that the demo ends with: curves over one time, each in a panel of its own, and marks for what happened meanwhile. Plain SVG."""

import math
from html import escape

WIDTH, LEFT, RIGHT, TOP, PANEL, GAP = 900, 64, 20, 56, 130, 44
COLOURS = ("#1f6feb", "#2da44e", "#b35900")


def height(value, top):
    """Of the panel, from 0 to 1; logarithmic, so that a trickle and a flood can both be seen, but with a 0."""
    return math.log10(1 + max(value, 0)) / math.log10(1 + top)


def panel(name, label, points, y, x, colour):
    """`points`: (seconds, value), in order; a value of None is a gap."""
    top = 10 ** math.ceil(math.log10(max([10, *(v for _, v in points if v is not None)])))
    at = lambda value: y + PANEL * (1 - height(value, top))
    out = [f'<text x="{LEFT}" y="{y - 10}" class="label">{escape(label)}</text>']
    for value in (0, *(10 ** n for n in range(round(math.log10(top)) + 1))):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at(value):.1f}" y2="{at(value):.1f}" class="grid"/>')
        if value == 0 or PANEL * height(value, top) > 16 and math.log10(value) % (1 if top <= 10_000 else 2) == 0:
            out.append(f'<text x="{LEFT - 6}" y="{at(value) + 4:.1f}" class="tick">{value:,}</text>')
    path, before = [], None
    for seconds, value in points:
        if value is not None:
            if before is None:
                path.append(f"M{x(seconds):.1f},{at(value):.1f}")
            path.append(f"L{x(seconds):.1f},{at(value):.1f}")  # a point by itself is a dot
        before = value
    out.append(f'<path id="{name}" d="{" ".join(path) or "M0,0"}" fill="none" stroke="{colour}" stroke-width="1.6" stroke-linecap="round"/>')
    return out


def draw(title, curves, marks):
    """`curves`: (name, label, points); `marks`: (seconds, text, "crash" or another class). Returns the SVG."""
    times = [t for _, _, points in curves for t, _ in points] + [t for t, _, _ in marks]
    begin, end = min(times, default=0), max(times, default=1)
    x = lambda seconds: LEFT + (WIDTH - LEFT - RIGHT) * (seconds - begin) / ((end - begin) or 1)
    bottom = TOP + len(curves) * (PANEL + GAP) - GAP
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 34}" width="{WIDTH}" font-family="sans-serif" font-size="12">',
           "<style>.grid{stroke:#d0d7de;stroke-width:.6}.tick{text-anchor:end;fill:#57606a;font-size:10px}.label{fill:#24292f}"
           ".crash{stroke:#cf222e;stroke-width:1.4;stroke-dasharray:5 3}.ended{stroke:#8b949e;stroke-dasharray:2 3}"
           ".said{text-anchor:middle;font-size:10px;fill:#57606a}</style>",
           f'<rect width="100%" height="100%" fill="#ffffff"/><text x="{LEFT}" y="18" font-size="14" class="label">{escape(title)}</text>']
    for n, (name, label, points) in enumerate(curves):
        out += panel(name, label, points, TOP + n * (PANEL + GAP), x, COLOURS[n % len(COLOURS)])
    for seconds, text, kind in marks:
        out.append(f'<line x1="{x(seconds):.1f}" x2="{x(seconds):.1f}" y1="{TOP - 4}" y2="{bottom}" class="{escape(kind)}"><title>{escape(text)}</title></line>')
        out.append(f'<text x="{x(seconds):.1f}" y="{bottom + 28}" class="said">{escape(text)}</text>')
    step = next(s for s in (1, 2, 5, 10, 20, 60, 300, 3600) if (end - begin) / s <= 15 or s == 3600)
    for seconds in range(math.ceil(begin / step) * step, math.floor(end) + 1, step):
        out.append(f'<text x="{x(seconds):.1f}" y="{bottom + 14}" class="said">{seconds} s</text>')
    return "\n".join([*out, "</svg>", ""])


def binned(points, width, reduce):
    """(seconds, value) by steps of `width` seconds from the first to the last: (middle of the step, reduce(values))."""
    steps = {}
    for seconds, value in points:
        steps.setdefault(int(seconds / width), []).append(value)
    return [((n + 0.5) * width, reduce(steps.get(n, []))) for n in range(min(steps, default=0), max(steps, default=-1) + 1)]
