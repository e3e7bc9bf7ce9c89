"""Programs in other languages. What they need is fetched by their language's own client, pinned, into the cache; where the language is not
installed the test is skipped."""

import fcntl
import hashlib
import os
import shutil
import subprocess

import pytest

from . import env


def need(*commands):
    for command in commands:
        if not shutil.which(command):
            pytest.skip(f"no {command} here")


def run(argv, cwd, **environ):
    done = subprocess.run([str(a) for a in argv], cwd=cwd, env={**os.environ, **environ}, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, argv))}:\n{env.tail(done.stdout)}\n{env.tail(done.stderr)}"


def cached(name, make, *what):
    """A directory in the cache that `make(directory)` fills once for this content."""
    key = hashlib.sha256("\0".join(what).encode()).hexdigest()[:16]
    path = env.ENV / "languages" / f"{name}-{key}"
    (env.ENV / "locks").mkdir(parents=True, exist_ok=True)
    with open(env.ENV / "locks" / f"languages-{name}", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (path / ".ready").exists():
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            make(path)
            (path / ".ready").touch()
    return path


def maven(name, pom):
    """The directory with the jars that the pom names."""
    need("javac", "java", "mvn")

    def make(path):
        shutil.copy(pom, path)
        run(["mvn", "-q", "-B", "-Dstyle.color=never", "dependency:copy-dependencies", "-DincludeScope=runtime",
             f"-DoutputDirectory={path}/jars"], path)
    return cached(name, make, pom.read_text()) / "jars"


def python(requirements):
    """The interpreter of a virtual environment that has what the file lists."""
    need("python3")

    def make(path):
        run(["python3", "-m", "venv", path / "venv"], path)
        run([path / "venv/bin/pip", "-q", "install", "--disable-pip-version-check", "--only-binary", ":all:", "-r", requirements], path)
    return cached("python", make, requirements.read_text()) / "venv/bin/python"
