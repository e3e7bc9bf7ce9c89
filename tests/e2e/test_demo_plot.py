"""The picture that `make demo` ends with."""
import importlib.util
import xml.etree.ElementTree as ElementTree

import pytest
from harness import env

SPEC = importlib.util.spec_from_file_location("plot", env.REPO / "tests/demo/plot.py")
plot = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(plot)
SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["lag", "throughput", "latency"]


def drawn(curves, marks):
    return ElementTree.fromstring(plot.draw("a <title> & more", [(name, f"{name} <label>", points) for name, points in curves.items()], marks))


def test_it_has_the_three_curves_and_the_mark():
    curves = {"lag": [(0.0, 0), (1.0, 20), (2.0, None), (3.0, 20000), (4.0, 0)], "throughput": [(0.5, 4.0), (1.5, 0.0), (3.5, 80000.0)],
              "latency": [(0.5, 0.8), (1.5, None), (3.5, 3000.5)]}
    root = drawn(curves, [(2.5, "kill -9 <relay>", "crash"), (1.0, "terminated", "ended")])
    width, height = (float(v) for v in root.get("viewBox").split()[2:])
    paths = {p.get("id"): p.get("d").split() for p in root.iter(f"{SVG}path")}
    assert list(paths) == NAMES
    assert ["".join(step[0] for step in paths[name]) for name in NAMES] == ["MLLMLL", "MLLL", "MLML"], "a gap is a gap"
    places = {name: [tuple(map(float, step[1:].split(","))) for step in path if step[0] == "L"] for name, path in paths.items()}
    assert all(0 <= x <= width and 0 <= y <= height for path in places.values() for x, y in path)
    lag = places["lag"]
    assert lag[0][0] < lag[1][0] < lag[2][0] < lag[3][0] and lag[2][1] < lag[1][1] < lag[0][1] == lag[3][1], "time runs right, more is higher"
    crash, = (line for line in root.iter(f"{SVG}line") if line.get("class") == "crash")
    assert lag[1][0] < float(crash.get("x1")) == float(crash.get("x2")) < lag[2][0], "between what came before it and what came after"
    assert "kill -9 <relay>" in [t.text for t in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("points", [[], [(1.0, 0)], [(1.0, None)], [(1.0, 0.0), (1.0, 10 ** 9)]])
def test_it_is_well_formed_whatever_there_was_to_see(points):
    root = drawn(dict.fromkeys(NAMES, points), [])
    assert [p.get("id") for p in root.iter(f"{SVG}path")] == NAMES


def test_what_comes_often_is_gathered_in_steps():
    assert plot.binned([], 0.5, len) == []
    assert plot.binned([(10.1, "a"), (10.2, "b"), (11.3, "c")], 0.5, len) == [(10.25, 2), (10.75, 0), (11.25, 1)]
