"""A PostgreSQL server of the test's own: a temporary directory, a free loopback port, a user that is not root."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psycopg

from . import env

DEFAULTS = {
    "shared_preload_libraries": "outbox",
    "listen_addresses": "127.0.0.1",
    "max_worker_processes": 32,
    "max_connections": 100,
    "max_prepared_transactions": 20,
    "wal_level": "replica",
    "shared_buffers": "64MB",
    "fsync": "on",
    "max_wal_size": "1GB",
    "log_line_prefix": "%m [%p] %b ",
    "log_min_messages": "info",
    "log_checkpoints": "off",
    "log_timezone": "UTC",
    "timezone": "UTC",
    "lc_messages": "C",
}

CRASH = re.compile(
    r"was terminated by signal|terminating any other active server processes|reinitializing|\bPANIC: |TRAP: "
    r"|could not fork|stack smashing|double free|corrupted")

STOP = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Postgres:
    """One server. `conf` overrides DEFAULTS.

    flavour  normal; faults (built with OUTBOX_FAULTS=1); plain (a PostgreSQL that has never heard of the extension)

    dir      its directory, as the host sees it: data/, log, and whatever a test puts there
    port     loopback, kept over restarts; the superuser is `postgres`, no password
    """

    def __init__(self, version=None, flavour="normal", conf=None, name="pg", data_from=None):
        self.version = int(version or env.default_version())
        self.flavour = flavour
        self.root = env.chroot_of(self.version)
        if reason := env.why_not(self.version):
            raise env.Unavailable(reason)
        env.build(self.version, flavour)
        base = self.root / "outbox" if self.root else env.ENV
        self.tree = base / "pg" / env.build_name(self.version, flavour)
        self.libdir = self.tree / f"lib/postgresql/{self.version}/lib"
        self.sharedir = self.tree / f"share/postgresql/{self.version}"
        self.dir = env.temp_dir(f"{name}{self.version}", self.root)
        self.data = self.dir / "data"
        self.logfile = self.dir / "log"
        self.port = env.free_port()
        plain = {"shared_preload_libraries": ""} if flavour == "plain" else {}
        self.conf = {**DEFAULTS, **plain, **(conf or {})}
        self.proc = None
        self._crashes_expected_up_to = 0
        if data_from:
            self._copy_data(Path(data_from))
        else:
            self._initdb()
        self._write_conf()

    # ---- making --------------------------------------------------------------------------------------------------

    def bin(self, name):
        """The path of a program, inside its chroot if it has one; run() is the usual way to use it."""
        return str(self.inner(self.tree / f"lib/postgresql/{self.version}/bin" / name))

    def inner(self, path):
        """A host path as the server's side sees it."""
        return Path("/") / Path(path).relative_to(self.root) if self.root else Path(path)

    def _initdb(self):
        done = subprocess.run(
            env.command([self.bin("initdb"), "-D", self.inner(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8",
                         "--locale=C.UTF-8", "--no-sync", "--no-instructions"], self.root),
            capture_output=True, text=True, env=self._environ(), cwd="/")
        if done.returncode:
            raise RuntimeError(f"initdb failed:\n{done.stdout}{done.stderr}")

    def _copy_data(self, source):
        """A physical copy, of a stopped server or of a base backup."""
        shutil.copytree(source, self.data, symlinks=True)
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        self.data.chmod(0o700)
        if env.IS_ROOT:
            subprocess.run(["chown", "-R", "{}:{}".format(*env.identity()), self.data], check=True)

    def _write_conf(self):
        settings = {**self.conf, "port": self.port}
        socket_dir = str(self.inner(self.dir))
        settings["unix_socket_directories"] = socket_dir if len(str(self.dir)) < 80 else ""
        quoted = ((k, str(v).replace("'", "''")) for k, v in settings.items())
        (self.data / "test.conf").write_text("".join(f"{k} = '{v}'\n" for k, v in quoted))
        (self.data / "test.conf").chmod(0o644)
        main = self.data / "postgresql.conf"
        if "include 'test.conf'" not in main.read_text():
            with main.open("a") as f:
                f.write("\ninclude 'test.conf'\n")

    def configure(self, **conf):
        """Changes settings in the file; reload() or restart() makes them count. A dot in a name is written `__`."""
        self.conf.update({k.replace("__", "."): v for k, v in conf.items()})
        self._write_conf()

    def _environ(self):
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/tmp", "TZ": "UTC",
                "PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": "postgres", "PGDATABASE": "postgres",
                "PGCONNECT_TIMEOUT": "20",
                **{k: v for k, v in os.environ.items() if k.startswith(("OUTBOX_TEST_", "ASAN_", "LSAN_"))}}

    # ---- running -------------------------------------------------------------------------------------------------

    def start(self, wait=True, timeout=60, wrapper=(), outer=()):
        """`wrapper` goes before the server's command (valgrind and its options, say); `outer` before everything, as the user
        that runs the tests (a namespace, say)."""
        assert not self.running, "already running"
        log = self.logfile.open("ab")
        self.proc = subprocess.Popen(
            [*outer, *env.command([*wrapper, self.bin("postgres"), "-D", self.inner(self.data)], self.root, dies_by="INT")],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environ(), cwd="/", start_new_session=True)
        log.close()
        if wait:
            self.wait_ready(timeout)
        return self

    def wait_ready(self, timeout=60):
        deadline = time.monotonic() + timeout
        while True:
            if self.proc.poll() is not None:
                raise RuntimeError(f"the server did not start (exit {self.proc.returncode}):\n{env.tail(self.log())}")
            if self._status() in ("ready", "standby"):
                with contextlib.suppress(psycopg.OperationalError):
                    self.connect(connect_timeout=5).close()
                    return
            if time.monotonic() > deadline:
                raise AssertionError(f"the server was not ready within {timeout} s:\n{env.tail(self.log())}")
            time.sleep(0.02)

    def _status(self):
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return lines[7].strip() if int(lines[0]) == self.proc.pid else None
        except (OSError, IndexError, ValueError):
            return None

    @property
    def running(self):
        return self.proc is not None and self.proc.poll() is None

    @property
    def pid(self):
        return self.proc.pid

    def stop(self, mode="fast", timeout=60):
        """Returns the seconds that it took. A server that does not stop is killed, and that is a failure."""
        if not self.running:
            return 0.0
        begin = time.monotonic()
        family = env.children(self.pid)
        env.send(self.pid, STOP[mode])
        try:
            self.proc.wait(timeout)
        except subprocess.TimeoutExpired:
            left = self._describe(self.pid, *env.children(self.pid))
            self.kill(patience=1)
            raise AssertionError(f"a {mode} stop took more than {timeout} s; left were:\n{left}\n{env.tail(self.log())}") from None
        took = time.monotonic() - begin
        for p in env.wait_gone(family, 10):
            env.send(p, signal.SIGKILL)
        return took

    def kill(self, patience=10):
        """kill -9 of the postmaster, as the OOM killer would; its children leave by themselves, or are killed after `patience`
        seconds."""
        if not self.running:
            return
        family = env.children(self.pid)
        env.send(self.pid, signal.SIGKILL)
        self.proc.wait()
        left = env.wait_gone(family, patience)
        for p in left:
            env.send(p, signal.SIGKILL)
        env.wait_gone(left, 10)

    def restart(self, mode="fast", **kw):
        self.stop(mode)
        return self.start(**kw)

    def reload(self):
        env.send(self.pid, signal.SIGHUP)

    def wait_recovered(self, timeout=60):
        """After a backend was killed -9: until the server takes connections again."""
        self.wait_ready(timeout)

    @staticmethod
    def _describe(*pids):
        out = []
        for p in pids:
            with contextlib.suppress(OSError):
                title = Path(f"/proc/{p}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                where = Path(f"/proc/{p}/wchan").read_text()
                out.append(f"{p} {title} [{where}]")
        return "\n".join(out)

    def close(self):
        """For teardown: stops the server and takes its directory away."""
        try:
            for p in (env.children(self.pid) if self.running else []):
                env.send(p, signal.SIGCONT)
            self.stop("fast", 30)
        finally:
            if self.running:
                self.kill()
            env.remove_tree(self.dir)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- using ---------------------------------------------------------------------------------------------------

    def dsn(self, dbname="postgres", user="postgres"):
        return f"host=127.0.0.1 port={self.port} dbname={dbname} user={user}"

    def connect(self, dbname="postgres", user="postgres", autocommit=True, **kw):
        kw.setdefault("connect_timeout", 20)
        kw.setdefault("application_name", "test")
        return psycopg.connect(host="127.0.0.1", port=self.port, dbname=dbname, user=user, autocommit=autocommit, **kw)

    def sql(self, query, params=None, dbname="postgres", user="postgres"):
        """One query or, without parameters, several; in a connection of its own, autocommit. The rows of the last one."""
        with self.connect(dbname, user) as c:
            cur = c.execute(query, params)
            while cur.nextset():
                pass
            return cur.fetchall() if cur.description else []

    def value(self, query, params=None, dbname="postgres", user="postgres"):
        """The first column of the only row; None when there is no row."""
        rows = self.sql(query, params, dbname, user)
        assert len(rows) <= 1, f"{len(rows)} rows from {query}"
        return rows[0][0] if rows else None

    def run(self, program, *args, check=True, input=None, timeout=120, **environ):
        """Runs a client program of this version against this server: run("pg_dump", "-Fc", "-d", db)."""
        done = subprocess.run(env.command([self.bin(program), *args], self.root), capture_output=True, text=True,
                              input=input, timeout=timeout, env={**self._environ(), **environ}, cwd="/")
        if check and done.returncode:
            raise AssertionError(f"{program} {args} gave {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def psql(self, sql, dbname="postgres", user="postgres", check=True, **kw):
        return self.run("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", dbname, "-U", user, "-f", "-",
                        input=sql, check=check, **kw).stdout.strip()

    def pg_dump(self, dbname, *args):
        return self.run("pg_dump", "-d", dbname, *args).stdout

    def base_backup(self, standby=False, conf=None, name="copy"):
        """A physical copy of this running server, not started: a standby of it, or a server of its own."""
        target = self.dir / f"backup-{time.monotonic_ns()}"
        self.run("pg_basebackup", "-D", str(self.inner(target)), "-c", "fast", "-X", "stream", "--no-sync")
        try:
            copy = Postgres(self.version, self.flavour, {**self.conf, **(conf or {})}, name, data_from=target)
        finally:
            shutil.rmtree(target, ignore_errors=True)
        if standby:
            copy.configure(primary_conninfo=f"host=127.0.0.1 port={self.port} user=postgres application_name={name}")
            (copy.data / "standby.signal").touch()
        return copy

    def upgrade(self, to):
        """pg_upgrade of this stopped server's data into `to`, a new server that was never started."""
        where = to.dir / "upgrade"
        where.mkdir()
        if env.IS_ROOT:
            os.chown(where, *env.identity())
        done = subprocess.run(
            env.command(["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", to.inner(where), to.bin("pg_upgrade"), "-U", "postgres",
                         "-b", os.path.dirname(self.bin("postgres")), "-B", os.path.dirname(to.bin("postgres")),
                         "-d", self.inner(self.data), "-D", to.inner(to.data), "-p", self.port, "-P", to.port], to.root),
            capture_output=True, text=True, timeout=300, env=to._environ())
        assert done.returncode == 0, f"pg_upgrade gave {done.returncode}:\n{done.stdout}{done.stderr}"

    def promote(self, timeout=30):
        self.sql("SELECT pg_promote(true, %s)", [timeout])

    def backends(self, where="true", params=None):
        """Rows of pg_stat_activity as dictionaries."""
        with self.connect() as c:
            cur = c.cursor(row_factory=psycopg.rows.dict_row)
            return cur.execute(f"SELECT * FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND ({where})", params).fetchall()

    @staticmethod
    def signal(pid, sig=signal.SIGKILL):
        """Backends in a chroot have the host's pids. SIGSTOP freezes one, SIGCONT lets it go on."""
        if sig == signal.SIGSTOP:
            env.freeze(pid)
        else:
            os.kill(pid, sig)

    # ---- its log ---------------------------------------------------------------------------------------------------

    def log(self):
        try:
            return self.logfile.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def mark(self):
        """A place in the log, for log_since()."""
        return len(self.log())

    def log_since(self, mark):
        return self.log()[mark:]

    def expect_crash(self):
        """What the log says up to now was meant; assert_no_crash() looks behind it."""
        self._crashes_expected_up_to = self.mark()

    def assert_no_crash(self):
        bad = [line for line in self.log_since(self._crashes_expected_up_to).splitlines() if CRASH.search(line)]
        assert not bad, "the server crashed:\n" + "\n".join(bad)


class Database:
    """One database of a server; the same verbs as the server's."""

    def __init__(self, pg, name):
        self.pg, self.name = pg, name

    def connect(self, **kw):
        return self.pg.connect(self.name, **kw)

    def sql(self, query, params=None, **kw):
        return self.pg.sql(query, params, dbname=self.name, **kw)

    def value(self, query, params=None, **kw):
        return self.pg.value(query, params, dbname=self.name, **kw)

    def psql(self, sql, **kw):
        return self.pg.psql(sql, dbname=self.name, **kw)

    def dump(self, *args):
        return self.pg.pg_dump(self.name, *args)
