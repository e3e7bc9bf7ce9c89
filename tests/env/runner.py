"""Runs the legs of the test suite, sums up what they said, and ends with the line `N passed, N failed, N skipped`."""

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests/e2e"))
from harness import env  # noqa: E402
from harness.postgres import Postgres  # noqa: E402

LEGS = ["build", "lint", "unit", "sanitize", "threads", "fuzz", "werror", "regress", "pgtap", "e2e"]
HELP = """legs:
  build     the extension, for every PostgreSQL version and flavour that the other legs use
  lint      tests/lint/*: executables that print `ok name` or `not ok name`
  unit      tests/unit: GoogleTest, through CMake and ctest
  sanitize  the same, with AddressSanitizer and UndefinedBehaviourSanitizer
  threads   the same for the sink, with ThreadSanitizer
  fuzz      tests/fuzz: libFuzzer, half a minute in all (times T), on the corpus and on what it finds
  werror    what includes the server's headers, with -Wall -Wextra -Werror
  regress   make installcheck: pg_regress and the isolation specs, on every PostgreSQL
  pgtap     tests/pgtap/*.sql, on every PostgreSQL
  e2e       tests/e2e: pytest

what follows `--` goes to pytest: tests/run check --only e2e -- -k order
"""


def cmake_build(name):
    """A build directory of this work tree's own: CMake refuses one that was made for another."""
    return env.ENV / "build" / f"cmake-{name}-{hashlib.sha1(str(REPO).encode()).hexdigest()[:8]}"


class Leg:
    """What one leg found."""

    def __init__(self, name):
        self.name = name
        self.passed = 0
        self.failures: list[str] = []
        self.skips: list[tuple[str, str]] = []

    def ok(self, n=1):
        self.passed += n

    def fail(self, what, output=""):
        self.failures.append(what)
        print(f"FAILED: {what}")
        if output.strip():
            print("    " + "\n    ".join(env.tail(output.rstrip(), 120).splitlines()))
        sys.stdout.flush()

    def skip(self, what, reason):
        self.skips.append((what, reason))

    @property
    def ran(self):
        return self.passed + len(self.failures) + len(self.skips)


def run(argv, **kw):
    return subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, cwd=kw.pop("cwd", REPO), **kw)


@contextlib.contextmanager
def lock(name):
    """One run at a time of what writes into a shared directory."""
    path = env.ENV / "locks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def base_of(version):
    root = env.chroot_of(version)
    return root / "outbox" if root else env.ENV


class Runner:
    def __init__(self, options):
        self.options = options
        self.host = env.host_version()
        self.versions = options.versions or sorted({15, 17, 18, self.host})

    def usable(self, leg):
        """The versions that can be used, each that cannot as skipped, each that does not build as failed."""
        for v in self.versions:
            if reason := env.why_not(v):
                leg.skip(f"{leg.name} on PostgreSQL {v}", reason)
                continue
            try:
                env.build(v, "normal")
            except RuntimeError as e:
                leg.fail(f"{leg.name} on PostgreSQL {v}: it does not build", str(e).splitlines()[-1])
                continue
            yield v

    # ---- the legs: each returns None when there is nothing to run --------------------------------------------------------

    def build(self, leg):
        if not (REPO / "Makefile").exists():
            return
        for v in self.versions:
            if reason := env.why_not(v):
                leg.skip(f"build for PostgreSQL {v}", reason)
                continue
            # Fault points are tested on the host's version; a test that wants another builds it itself.
            for flavour in ["normal", "faults"] if v == self.host else ["normal"]:
                try:
                    env.build(v, flavour)
                    leg.ok()
                except RuntimeError as e:
                    leg.fail(f"build for PostgreSQL {v}, {flavour}", str(e))

    def lint(self, leg):
        tree = env.ENV / "pg" / env.build_name(self.host, "normal")
        library = tree / f"lib/postgresql/{self.host}/lib/outbox.so"
        environ = {**os.environ, "OUTBOX_SO": str(library) if library.exists() else ""}
        for script in sorted((REPO / "tests/lint").glob("*")):
            if not (script.is_file() and os.access(script, os.X_OK)):
                continue
            done = run([script], env=environ)
            self._tap(leg, f"lint/{script.name}", done.stdout, done.returncode)

    def unit(self, leg):
        self._cmake(leg, "unit", [])

    def sanitize(self, leg):
        self._cmake(leg, "sanitize", ["-DOUTBOX_SANITIZE=address,undefined"])

    def threads(self, leg):
        self._cmake(leg, "threads", ["-DOUTBOX_SANITIZE=thread"], tests="^sink")

    def fuzz(self, leg):
        if not shutil.which("clang++"):
            leg.skip("fuzz", "no clang++ (packages clang and libclang-rt-dev)")
            return
        seconds = round(6 * float(os.environ.get("T") or 1))
        self._cmake(leg, "fuzz", ["-DOUTBOX_FUZZ=ON", "-DOUTBOX_TESTS=OFF", "-DCMAKE_CXX_COMPILER=clang++", f"-DOUTBOX_FUZZ_SECONDS={seconds}"])

    def _cmake(self, leg, name, options, tests="."):
        if not (REPO / "CMakeLists.txt").exists() or not any((REPO / "tests/unit").glob("*.cpp")):
            return
        with lock(f"cmake-{name}"):
            build = cmake_build(name)
            for step in (["cmake", "-S", REPO, "-B", build, *options], ["cmake", "--build", build, "-j2"]):
                done = run(step)
                if done.returncode:
                    keep = [x for x in done.stdout.splitlines() if re.search(r"error|warning|undefined|\*\*\*|note:", x, re.I)]
                    leg.fail(f"{name}: {' '.join(str(s) for s in step[:3])}", "\n".join(keep) or done.stdout)
                    return
            report = build / "junit.xml"
            report.unlink(missing_ok=True)
            done = run(["ctest", "--test-dir", build, "-j2", "-R", tests, "--timeout", "300", "--output-on-failure", "--output-junit", report])
            self._junit(leg, report)
            if leg.failures:
                print(env.tail(done.stdout, 120))
            elif done.returncode:
                leg.fail(f"{name}: ctest gave {done.returncode}", done.stdout)

    def werror(self, leg):
        if not (REPO / "CMakeLists.txt").exists() or not any((REPO / "src/pg").glob("*.cpp")):
            return
        with lock("cmake-werror"):
            build = cmake_build("werror")
            pg_config = f"/usr/lib/postgresql/{self.host}/bin/pg_config"
            done = run(["cmake", "-S", REPO, "-B", build, "-DOUTBOX_TESTS=OFF", f"-DPG_CONFIG={pg_config}"])
            if not done.returncode:
                done = run(["cmake", "--build", build, "--target", "outbox_backend", "-j2"])
            if done.returncode:
                leg.fail("werror", done.stdout)
            else:
                leg.ok()

    def regress(self, leg):
        inputs = [p for p in (REPO / "sql").glob("*.sql") if "--" not in p.name]
        specs = list((REPO / "tests/isolation").rglob("*.spec"))
        if not inputs and not specs:
            return
        for v in self.usable(leg):
            with lock(f"installcheck-{v}"), Postgres(v, name="regress") as pg:
                pg.start()
                build = base_of(v) / "build" / env.build_name(v, "normal")
                inner = pg.inner(build)
                for old in [*build.rglob("regression.diffs"), *build.rglob("regression.out")]:
                    old.unlink()
                output, code = "", 0
                # One after the other: make would not come to the second when the first fails.
                for off in (["ISOLATION="] if inputs else None, ["REGRESS="] if specs else None):
                    if off:
                        argv = ["make", "-C", inner, f"PG_CONFIG={pg.bin('pg_config')}", *off, "installcheck"]
                        done = run(["chroot", pg.root, *argv] if pg.root else argv,
                                   env={**pg._environ(), "HOME": os.environ.get("HOME", "/tmp")})
                        output, code = output + done.stdout, code or done.returncode
                diffs = "\n".join(p.read_text(errors="replace") for p in sorted(build.rglob("regression.diffs")))
                before = leg.ran
                for line in output.splitlines():
                    # PostgreSQL 15: `test name  ... ok  12 ms`; 16 and later: `ok 1  - name  12 ms`.
                    if m := re.match(r"(?:test\s+|\s+)(\S+)\s+\.\.\. (ok|FAILED)\b", line):
                        name, good = m[1], m[2] == "ok"
                    elif m := re.match(r"\s*(not ok|ok) \d+\s+[-+] (\S+)", line):
                        name, good = m[2], m[1] == "ok"
                    else:
                        continue
                    if good:
                        leg.ok()
                    else:
                        leg.fail(f"regress {name} on PostgreSQL {v}")
                if leg.ran == before or (code and not diffs):
                    leg.fail(f"installcheck on PostgreSQL {v} gave {code}", output + "\n" + env.tail(pg.log()))
                elif diffs:
                    print("\n".join(diffs.splitlines()[:300]))
                self._no_crash(leg, pg)

    def pgtap(self, leg):
        files = sorted((REPO / "tests/pgtap").glob("*.sql"))
        if not files:
            return
        for v in self.usable(leg):
            with Postgres(v, name="pgtap") as pg:
                pg.start()
                for file in files:
                    db = "tap_" + re.sub(r"\W", "_", file.stem)[:50]
                    pg.sql(f"CREATE DATABASE {db}")
                    pg.sql("CREATE EXTENSION pgtap; CREATE EXTENSION outbox", dbname=db)
                    done = pg.run("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-P", "pager=off", "-d", db, "-f", "-",
                                  input=file.read_text(), check=False, timeout=600)
                    self._tap(leg, f"{file.name} on PostgreSQL {v}", done.stdout + done.stderr, done.returncode, planned=True)
                    pg.sql(f"DROP DATABASE {db} WITH (FORCE)")
                self._no_crash(leg, pg)

    def e2e(self, leg):
        if not any((REPO / "tests/e2e").glob("test_*.py")):
            return
        report = env.ENV / "build" / f"e2e-{os.getpid()}.xml"
        report.parent.mkdir(exist_ok=True)
        environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if self.options.versions and len(self.options.versions) == 1:
            environ["PGVERSION"] = str(self.options.versions[0])
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=10", "--tb=short", "--rootdir",
                REPO / "tests/e2e", "-c", REPO / "tests/e2e/pytest.ini", f"--junitxml={report}", f"--timeout={300 if self.options.tier == 'check' else 1500}", *self.options.pytest]
        # Most of a test is waiting. Two files at a time, each with servers of its own; what measures (check-long) has the machine for itself.
        if self.options.tier == "check" and not self.options.pytest:
            argv += ["-n", "2", "--dist", "loadfile"]
        if not any(Path(a.split("::")[0]).exists() for a in self.options.pytest):
            argv.append(REPO / "tests/e2e")
        sys.stdout.flush()
        code = subprocess.call([str(a) for a in argv], cwd=REPO, env=environ, stdin=subprocess.DEVNULL)
        self._junit(leg, report)
        report.unlink(missing_ok=True)
        if code not in (0, 1) or (code and not leg.failures):
            leg.fail(f"e2e: pytest gave {code}")

    # ---- reading what they said --------------------------------------------------------------------------------------------

    def _no_crash(self, leg, pg):
        try:
            pg.assert_no_crash()
        except AssertionError as e:
            leg.fail(f"{leg.name}: the server of PostgreSQL {pg.version}", f"{e}\n{env.tail(pg.log())}")

    def _tap(self, leg, name, output, code, planned=False):
        seen = failed = 0
        plan = None
        for line in output.splitlines():
            if m := re.match(r"1\.\.(\d+)", line):
                plan = int(m[1])
            elif m := re.match(r"(not ok|ok)\b[ \d]*-? ?(.*)", line):
                seen += 1
                what = f"{name}: {m[2]}"
                if skipped := re.search(r"# SKIP\s*(.*)", m[2], re.I):
                    leg.skip(what, skipped[1] or "no reason given")
                elif m[1] == "ok" or re.search(r"# TODO", m[2], re.I):
                    leg.ok()
                else:
                    failed += 1
                    leg.fail(what)
        if code and not failed:
            leg.fail(f"{name}: gave {code}", output)
        elif not seen:
            leg.fail(f"{name}: said nothing", output)
        elif planned and plan != seen:
            leg.fail(f"{name}: planned {plan} tests, ran {seen}", output)
        elif failed:
            print("\n".join(x for x in output.splitlines() if not x.startswith("ok "))[:8000])

    def _junit(self, leg, report):
        try:
            root = ElementTree.parse(report).getroot()
        except (OSError, ElementTree.ParseError) as e:
            leg.fail(f"{leg.name}: no report ({e})")
            return
        for case in root.iter("testcase"):
            name = "::".join(filter(None, [case.get("classname"), case.get("name")]))
            if case.find("failure") is not None or case.find("error") is not None:
                leg.failures.append(name)
            elif (s := case.find("skipped")) is not None:
                leg.skip(name, s.get("message") or "no reason given")
            else:
                leg.ok()


def main():
    parser = argparse.ArgumentParser(prog="tests/run", epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tier", choices=["check", "long"], help="long: long tests too, and all times and counts T times as long")
    parser.add_argument("--only", metavar="LEG[,LEG]", type=lambda s: s.split(","), default=LEGS, help="just these legs")
    parser.add_argument("--versions", metavar="V[,V]", type=lambda s: [int(v) for v in s.split(",")], help="just these PostgreSQLs")
    argv = sys.argv[1:]
    extra = []
    if "--" in argv:
        argv, extra = argv[:argv.index("--")], argv[argv.index("--") + 1:]
    options = parser.parse_args(argv)
    options.pytest = extra
    if unknown := set(options.only) - set(LEGS):
        parser.error(f"unknown leg: {', '.join(unknown)}")
    if options.tier == "long":
        os.environ["OUTBOX_LONG"] = "1"
        os.environ.setdefault("T", "10")
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")

    def terminate(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, terminate)
    env.sweep()

    runner = Runner(options)
    begin = time.monotonic()
    legs = []
    for name in (n for n in LEGS if n in options.only):
        start = time.monotonic()
        print(f"== {name}", flush=True)
        leg = Leg(name)
        try:
            getattr(runner, name)(leg)
        except Exception as e:  # a leg that breaks is a failure of the leg, and the others still run
            leg.fail(f"{name}: {type(e).__name__}: {e}")
        took = time.monotonic() - start
        if leg.ran:
            if not leg.passed and not leg.failures:
                leg.fail(f"{name}: nothing passed")
            legs.append(leg)
            print(f"   {leg.passed} passed, {len(leg.failures)} failed, {len(leg.skips)} skipped in {took:.0f} s", flush=True)
        elif extra or name != "e2e":
            print("   nothing to run yet", flush=True)

    print(f"\n== all, in {time.monotonic() - begin:.0f} s")
    reasons: dict[str, list[str]] = {}
    for leg in legs:
        for what, reason in leg.skips:
            reasons.setdefault(reason, []).append(what)
    for reason, what in reasons.items():
        print(f"skipped {len(what)}: {reason} ({what[0]}{', …' if len(what) > 1 else ''})")
    for leg in legs:
        for what in leg.failures:
            print(f"failed: {what}")
    passed, failed, skipped = (sum(n) for n in zip(*((x.passed, len(x.failures), len(x.skips)) for x in legs), strict=True)) \
        if legs else (0, 0, 0)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    if not shutil.which("make"):
        sys.exit("no make: run tests/env/install.sh")
    sys.exit(main())
