"""Prometheus and its exporter for PostgreSQL, as Debian has them: what they make of monitoring/."""

import json
import os
import re
import signal
import subprocess
import urllib.parse
import urllib.request

from . import env
from .wait import eventually

BIN = env.ENV / "prometheus/usr/bin"
DIR = env.REPO / "monitoring"
SAMPLE = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def get(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


def promtool(*args, stdin=None):
    return subprocess.run([BIN / "promtool", *args], input=stdin, capture_output=True, text=True)


class Process:
    """One of the two, on a port of its own."""

    def __init__(self, name):
        self.port, self.dir, self.proc = env.free_port(), env.temp_dir(name), None
        self.url, self.logfile = f"http://127.0.0.1:{self.port}", self.dir / "log"

    def start(self, argv, ready, **environ):
        with self.logfile.open("ab") as log:
            self.proc = subprocess.Popen(env.command(argv, dies_by="TERM"), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir,
                                         env={"PATH": os.environ["PATH"], **environ}, start_new_session=True)

        def answers():
            if self.proc.poll() is not None:
                raise RuntimeError(self.log())
            return get(self.url + ready)
        eventually(answers, 60, f"{argv[0]} answers", ignore=(OSError,))
        return self

    def log(self):
        return env.tail(self.logfile.read_text(errors="replace"))

    def close(self):
        if self.proc is not None and self.proc.poll() is None:
            env.send(self.proc.pid, signal.SIGTERM)
            try:
                self.proc.wait(10)
            except subprocess.TimeoutExpired:
                env.send(self.proc.pid, signal.SIGKILL)
                self.proc.wait()
        env.remove_tree(self.dir)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Exporter(Process):
    """Asks with monitoring/postgres_exporter.yml, as this role."""

    def __init__(self, db, user):
        super().__init__("exporter")
        queries = self.dir / "queries.yml"  # where the test user can read it
        queries.write_text((DIR / "postgres_exporter.yml").read_text())
        queries.chmod(0o644)
        dsn = f"postgresql://{user}@127.0.0.1:{db.pg.port}/{db.name}?sslmode=disable"
        self.start([BIN / "prometheus-postgres-exporter", f"--web.listen-address=127.0.0.1:{self.port}", f"--extend.query-path={queries}",
                    "--disable-default-metrics", "--disable-settings-metrics"], "/", DATA_SOURCE_NAME=dsn)

    def text(self):
        """What is scraped, without the metrics of the exporter itself."""
        lines = get(self.url + "/metrics").splitlines()
        return "".join(line + "\n" for line in lines if re.match(r"(# (HELP|TYPE) )?outbox_", line))

    def samples(self):
        """{(name, labels): value}; labels as a frozenset of pairs, without the exporter's own."""
        found = {}
        for line in self.text().splitlines():
            if not line.startswith("#"):
                name, labels, value = SAMPLE.match(line).groups()
                found[name, frozenset((k, v) for k, v in LABEL.findall(labels or "") if k != "server")] = float(value)
        return found


class Prometheus(Process):
    """Scrapes the exporter every second, with the rules of monitoring/alerts.yml."""

    def __init__(self, exporter):
        super().__init__("prometheus")
        (self.dir / "alerts.yml").write_text((DIR / "alerts.yml").read_text())
        (self.dir / "prometheus.yml").write_text(json.dumps({  # JSON is YAML
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": ["alerts.yml"],
            "scrape_configs": [{"job_name": "outbox", "static_configs": [{"targets": [f"127.0.0.1:{exporter.port}"]}]}]}))
        for path in self.dir.glob("*.yml"):
            path.chmod(0o644)
        self.start([BIN / "prometheus", f"--config.file={self.dir / 'prometheus.yml'}", f"--storage.tsdb.path={self.dir / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}"], "/-/ready")

    def api(self, path, **parameters):
        answer = json.loads(get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expr):
        return self.api("query", query=expr)["result"]

    def rules(self):
        return [rule for group in self.api("rules")["groups"] for rule in group["rules"]]
