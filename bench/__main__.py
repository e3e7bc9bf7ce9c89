"""The command behind `make bench`. See README.md beside this file."""

import argparse
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

from harness import env
from harness import kafka as kafka_module

from . import plots, report
from .figures import drain, following, hot_key, lag, latency, old_snapshot, size, wal, webhooks, writers
from .stage import Options, Stage, say

MODULES = {"drain": drain, "writers": writers, "latency": latency, "old snapshot": old_snapshot, "size": size, "WAL": wal, "hot key": hot_key,
           "lag": lag, "following": following, "webhooks": webhooks}
FIGURES = sorted({f for m in MODULES.values() for f in m.FIGURES}, key=report.order)
CONTESTANTS = ("bare", "outbox", "taught", "tuned", "debezium", "wrk")


def options():
    """From the command line, or from the environment: make hands its variables on so."""
    said = os.environ.get
    parser = argparse.ArgumentParser(prog="bench/run", description="The benchmark; each option is a variable of `make bench` too: make bench ONLY=P1,P3 ROUNDS=5")
    parser.add_argument("--only", default=said("ONLY", ""), help="some of " + ", ".join(FIGURES))
    parser.add_argument("--without", default=said("WITHOUT", ""), help="leave out some of " + ", ".join(CONTESTANTS))
    parser.add_argument("--full", action="store_true", default=said("FULL", "") not in ("", "0"), help="ten million events where the figure speaks of them")
    parser.add_argument("--events", type=int, default=said("EVENTS"), help="a backlog, 1,000,000 events unless said")
    parser.add_argument("--rounds", type=int, default=said("ROUNDS", 3))
    parser.add_argument("--seconds", type=int, default=said("SECONDS", 8), help="one run of pgbench")
    parser.add_argument("--out", default=said("OUT"), help="where report.md, raw.json and the pictures go")
    parser.add_argument("--again", type=Path, default=said("AGAIN"), help="measure nothing: report and pictures from this raw.json")
    args = parser.parse_args()
    only = [f.strip().upper() for f in args.only.split(",") if f.strip()] or FIGURES
    without = [c.strip().lower() for c in args.without.split(",") if c.strip()]
    for given, known in (only, FIGURES), (without, CONTESTANTS):
        for name in given:
            if name not in known:
                parser.error(f"there is no {name}: {', '.join(known)}")
    events = args.events or 1_000_000
    out = Path(args.out) if args.out else env.ENV / "bench" / time.strftime("%Y%m%d-%H%M%S")
    return Options(events, args.rounds, args.seconds, 10_000_000 if args.full else 2 * events, only, without, out.resolve(),
                   again=Path(args.again) if args.again else None)


def librdkafka():
    """The version of the one that relay and bare program use."""
    import ctypes
    library = ctypes.CDLL("librdkafka.so.1")
    library.rd_kafka_version_str.restype = ctypes.c_char_p
    return library.rd_kafka_version_str().decode()


def show(out, raw):
    print("\n" + report.write(out, raw, MODULES))
    pictures = plots.draw(out, raw["measured"])
    print(f"{out}: " + ", ".join(["report.md", "raw.json", *pictures]), flush=True)


def main():
    chosen = options()
    if chosen.again:
        return show(chosen.out, json.loads(chosen.again.read_text()))
    if why := kafka_module.available():
        sys.exit(f"bench: {why}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    env.sweep()
    if (load := os.getloadavg()[0]) > 0.5:
        say(f"WARNING: this machine is busy (load average {load:.1f}); the figures will be about that")
    modules = {name: m for name, m in MODULES.items() if set(m.FIGURES) & set(chosen.only)}
    raw = {"machine": report.machine(), "load": os.getloadavg(), "began": time.strftime("%Y-%m-%d %H:%M:%S %z"), "options": asdict(chosen),
           "librdkafka": librdkafka(), "measured": {}}
    failures, interrupted = [], False
    try:
        with Stage(chosen) as stage:
            failures = stage.failures
            raw["postgres"] = stage.pg.value("SHOW server_version")
            for name, module in modules.items():
                say(f"{name}: {', '.join(f for f in module.FIGURES if f in chosen.only)}")
                try:
                    module.measure(stage, raw["measured"].setdefault(name, {}))
                except Exception:  # whatever it is, the other figures are still to be had
                    stage.failures.append(name)
                    say(f"{name} FAILED: {traceback.format_exc()}")
    except (KeyboardInterrupt, SystemExit):
        interrupted = True
        say("interrupted; everything is stopped, what was measured follows")
    if "postgres" not in raw:
        sys.exit(130)
    show(chosen.out, raw)
    if failures:
        print("FAILED: " + "; ".join(failures))
    sys.exit(130 if interrupted else bool(failures))


if __name__ == "__main__":
    main()
