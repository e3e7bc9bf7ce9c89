"""Where things are, and how a process is started as a user that is not root, in a chroot or not."""

import contextlib
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from functools import lru_cache
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]
IS_ROOT = os.geteuid() == 0
_default = "/var/tmp/outbox-env" + ("" if IS_ROOT else "-" + pwd.getpwuid(os.geteuid()).pw_name)
ENV = Path(os.environ.get("OUTBOX_ENV") or _default)
TEST_USER = "outboxtest"
SUITES = {17: "trixie", 18: "forky"}


@lru_cache(None)
def host_version() -> int | None:
    """The newest PostgreSQL of the host that an extension can be built against."""
    found = [int(p.parent.parent.name) for p in Path("/usr/lib/postgresql").glob("*/bin/postgres")
             if (p.parent / "pg_config").exists()]
    return max(found, default=None)


def default_version() -> int:
    return int(os.environ.get("PGVERSION") or host_version() or 15)


def chroot_of(version: int) -> Path | None:
    """The chroot that a version lives in; None for the host's own."""
    if version == host_version():
        return None
    if version not in SUITES:
        raise Unavailable(f"no PostgreSQL {version} here: the host has {host_version()}, the chroots have 17 and 18")
    return ENV / "chroot" / SUITES[version]


class Unavailable(Exception):
    """A version cannot be had on this machine; str() is the reason."""


@lru_cache(None)
def why_not(version: int) -> str | None:
    """None when the version can be used, else the reason. Makes the chroot if it is not there yet."""
    try:
        root = chroot_of(version)
    except Unavailable as e:
        return str(e)
    if root is None or os.environ.get("OUTBOX_NO_BUILD"):
        return None if root is None or (root / ".outbox-ready").exists() else f"no chroot for PostgreSQL {version}"
    done = subprocess.run([str(REPO / "tests/env/chroot.sh"), SUITES[version]], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["tests/env/chroot.sh failed"]
        return f"PostgreSQL {version}: {lines[-1].removeprefix('chroot.sh: ').removeprefix('skipped: ')}"
    return None


def build_name(version: int, flavour: str) -> str:
    """The directory's name below pg/ and build/; OUTBOX_TAG keeps builds apart in a shared cache."""
    tag = os.environ.get("OUTBOX_TAG")
    return f"{version}-{flavour}" + (f"-{tag}" if tag else "")


def build(version: int, flavour: str) -> None:
    """Builds the work tree for that server, once a session; the script is quick when nothing has changed."""
    if error := _build(version, flavour):
        raise RuntimeError(error)


@lru_cache(None)
def _build(version: int, flavour: str) -> str | None:
    if os.environ.get("OUTBOX_NO_BUILD"):
        return None
    done = subprocess.run([str(REPO / "tests/env/build.sh"), str(version), flavour], capture_output=True, text=True)
    return f"build.sh {version} {flavour} failed:\n{done.stderr}" if done.returncode else None


@lru_cache(None)
def identity() -> tuple[int, int]:
    """uid and gid that servers run as."""
    if not IS_ROOT:
        return os.getuid(), os.getgid()
    try:
        entry = pwd.getpwnam(TEST_USER)
    except KeyError:
        raise RuntimeError(f"no user {TEST_USER}: run tests/env/install.sh") from None
    return entry.pw_uid, entry.pw_gid


def command(argv: list, root: Path | None = None, dies_by: str | None = None) -> list[str]:
    """argv as the test user, inside `root` if given. The process gets the signal `dies_by` when the tests die."""
    out: list[str] = ["chroot", str(root)] if root else []
    options = []
    if IS_ROOT:
        uid, gid = identity()
        options += [f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
    # The signal is sent when the *thread* that started the process ends, so only the main one asks for it.
    if dies_by and threading.current_thread() is threading.main_thread():
        options += [f"--pdeathsig={dies_by}"]
    return out + (["setpriv", *options, "--"] if options else []) + [str(a) for a in argv]


def temp_dir(name: str, root: Path | None = None) -> Path:
    """A new directory that belongs to the test user, as the host sees it."""
    parent = (root / "outbox" if root else ENV) / "tmp"
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        path = parent / f"{name}-{os.getpid()}-{random.SystemRandom().randrange(16**6):06x}"
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o755)
            break
    if IS_ROOT:
        os.chown(path, *identity())
    return path


def remove_tree(path: Path) -> None:
    if os.environ.get("OUTBOX_KEEP"):
        print(f"kept: {path}")
        return
    shutil.rmtree(path, ignore_errors=True)


def sweep() -> None:
    """Takes away the directories of earlier sessions that were killed; their processes died with them."""
    parents = [ENV / "tmp", *(ENV / "chroot" / s / "outbox/tmp" for s in SUITES.values())]
    for parent in parents:
        for path in parent.glob("*-*-*"):
            owner = re.match(r".*-(\d+)-[0-9a-f]{6}$", path.name)
            if owner and not Path("/proc", owner[1]).exists():
                shutil.rmtree(path, ignore_errors=True)


_given: set[int] = set()


def free_port() -> int:
    """A free loopback port outside the ephemeral range, so that no outgoing connection takes it between two starts."""
    for _ in range(1000):
        port = random.SystemRandom().randrange(20000, 32000)
        if port in _given:
            continue
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise RuntimeError("no free port")


def children(pid: int) -> list[int]:
    out = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                out.append(int(stat.parent.name))
    return out


def alive(pid: int) -> bool:
    """Running, stopped or waiting; not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def send(pid: int, sig: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sig)


def freeze(pid: int) -> None:
    """SIGSTOP; returns when every thread has stopped, so that nothing is answered any more."""
    send(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        states = []
        for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):
                states.append(stat.read_text().rsplit(")", 1)[1].split()[0])
        if all(x in "TtZX" for x in states):
            return
        time.sleep(0.005)
    raise RuntimeError(f"process {pid} did not stop on SIGSTOP")


def wait_gone(pids: list[int], timeout: float) -> list[int]:
    """Waits until the processes are gone; returns those that are still there."""
    deadline = time.monotonic() + timeout
    while left := [p for p in pids if alive(p)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.02)
    return []


def tail(text: str, lines: int = 60) -> str:
    return "\n".join(text.splitlines()[-lines:])

