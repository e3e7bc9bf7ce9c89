"""What monitoring/ ships does what it says: a real exporter scrapes a real sink, the alerts fire when they should and not else, and the
dashboard asks for what there is."""
import json
import re

import pytest
from harness.prometheus import DIR, Exporter, Prometheus, promtool
from harness.wait import eventually
from harness.workload import make_sink, nothing_pending
from test_counters import become, metrics, write

DASHBOARD = json.loads((DIR / "grafana-dashboard.json").read_text())
PG_CONF = {"outbox.poll_interval": "200ms"}
ROLE = "monitoring_exporter"


@pytest.fixture
def scraped(db, kafka, topic):
    """A database with a sink, and an exporter that may no more than outbox.grant_monitor gives."""
    make_sink(db, kafka, topic, lanes=2)
    db.sql(f"CREATE ROLE {ROLE} LOGIN; SELECT outbox.grant_monitor('{ROLE}')")
    write(db, 200)
    nothing_pending(db)
    become(db, published_total=200, delivery_seconds_count=200)
    try:
        with Exporter(db, ROLE) as exporter:
            yield db, exporter
    finally:
        db.sql(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


def test_the_exporter_of_debian_shows_what_the_view_has_and_promtool_has_nothing_against_it(scraped):
    db, exporter = scraped
    here = frozenset({("database", db.name), ("sink", "kafka")})
    samples, view = exporter.samples(), metrics(db)
    moving = {"heartbeat_seconds"}
    for name, value in view.items():
        if isinstance(value, int | float) and name not in moving and not name.startswith(("delivery_seconds", "batch_events")):
            assert samples["outbox_" + name, here] == value, name
    for name in ("delivery_seconds", "batch_events"):
        count, total = (samples[f"outbox_{name}_{what}", here] for what in ("count", "sum"))
        assert count == view[f"{name}_count"] and total == pytest.approx(view[f"{name}_sum"])
        buckets = {float(dict(labels)["le"]): value for (metric, labels), value in samples.items() if metric == f"outbox_{name}_bucket"}
        assert buckets.pop(float("inf")) == count
        assert buckets == dict(zip(view[name], map(float, view[f"{name}_bucket"]), strict=True))
    assert samples["outbox_published_total", here] == 200 and samples["outbox_relays", here] == 2
    health = {dict(labels)["check"]: value for (metric, labels), value in samples.items() if metric == "outbox_health_ok"}
    assert health == dict(db.sql("SELECT \"check\", ok::int::float FROM outbox.health"))
    log = dict(zip(("segments", "retention_seconds"), db.sql("SELECT segments, retention_seconds FROM outbox.metrics_log")[0], strict=True))
    for name, value in log.items():
        assert samples[f"outbox_log_{name}", frozenset({("database", db.name)})] == value
    assert "has HELP but no" not in exporter.text() and "Unknown metric" not in exporter.text()
    lint = promtool("check", "metrics", stdin=exporter.text())
    assert lint.returncode == 0, lint.stdout + lint.stderr


def selectors(expr):
    """The metrics that an expression asks for, each with the labels that it names, and the labels it groups by."""
    found = [(name, set(re.findall(r"(\w+)\s*=?[=~!]", labels or ""))) for name, labels in re.findall(r"\b(outbox_\w+)(?:\{([^}]*)\})?", expr)]
    grouped = {label for labels in re.findall(r"\bby \(([^)]*)\)", expr) for label in labels.split(", ")}
    assert found, expr
    return found, grouped


def test_every_query_of_the_dashboard_and_of_the_rules_runs_and_names_what_there_is(scraped):
    db, exporter = scraped
    labels = {}
    for (name, pairs) in exporter.samples():
        labels.setdefault(name, {"instance", "job"}).update(k for k, _ in pairs)

    def check(expr):
        found, grouped = selectors(expr)
        for name, named in found:
            assert name in labels, f"{name} in {expr}"
            assert named | grouped <= labels[name], f"{(named | grouped) - labels[name]} in {expr}"
    exprs = [t["expr"] for panel in DASHBOARD["panels"] for t in panel["targets"]]
    assert len(exprs) > 30
    with Prometheus(exporter) as prometheus:
        eventually(lambda: prometheus.query("count_over_time(outbox_published_total[1m]) > 3"), 30, "some scrapes")
        write(db, 100, first=201)
        eventually(lambda: prometheus.query("outbox_published_total == 300"), 30, "it goes on")
        for expr in exprs:
            check(expr)
            now = expr.replace("$__rate_interval", "1m").replace("$database", ".*").replace("$sink", ".*")
            assert "$" not in now, expr
            assert prometheus.query(now) or "==" in now, f"nothing for {now}"
        for variable in DASHBOARD["templating"]["list"]:
            if variable["type"] == "query":
                metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()
                assert label in labels[metric]
        eventually(lambda: all(r["health"] == "ok" for r in prometheus.rules()), 30, lambda: f"every rule runs: {prometheus.rules()}")
        for rule in prometheus.rules():
            check(rule["query"])
            for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
                assert all(label in labels[name] for name, _ in selectors(rule["query"])[0]), rule["name"]
        eventually(lambda: not prometheus.api("alerts")["alerts"], 30, "all is well")
        db.sql("SELECT outbox.pause('kafka')")
        eventually(lambda: [a["labels"]["alertname"] for a in prometheus.api("alerts")["alerts"]] == ["OutboxPaused"], 30, "an alert, for one reason")


# ---- the rules ---------------------------------------------------------------------------------------------------------------

SINK = 'instance="db:9187", database="shop", sink="kafka"'
LOG = 'instance="db:9187", database="shop"'


def health(check):
    return f'outbox_health_ok{{{LOG}, check="{check}"}}'


# For each alert: series with what they are while all is well and from minute 10 on; how long after that it must still be silent, and when
# it must fire; its labels but for severity.
CASES = {
    "OutboxPendingTooLong": ([(f"outbox_oldest_pending_seconds{{{SINK}}}", 299, 301)], 0, 1, SINK),
    "OutboxBackingOff": ([(f"outbox_backing_off{{{SINK}}}", 0, 1)], 4, 5, SINK),
    "OutboxSinkComesAndGoes": ([(f"outbox_errors_outage_total{{{SINK}}}", "3", "+1")], 3, 10, SINK),
    "OutboxDead": ([(f"outbox_dead{{{SINK}}}", 0, 1)], 0, 1, SINK),
    "OutboxParked": ([(f"outbox_oldest_parked_seconds{{{SINK}}}", 600, 601)], 0, 1, SINK),
    "OutboxRelayAbsent": ([(f"outbox_relays{{{SINK}}}", 2, 1), (f"outbox_lanes{{{SINK}}}", 2, 2), (f"outbox_halted{{{SINK}}}", 0, 0)], 1, 2, SINK),
    "OutboxRelayStuck": ([(health("sink kafka: heartbeat"), 1, 0)], 0, 1, LOG + ', check="sink kafka: heartbeat"'),
    "OutboxCopyHalted": ([(f"outbox_halted{{{SINK}}}", 0, 1), (f"outbox_relays{{{SINK}}}", 0, 0), (f"outbox_lanes{{{SINK}}}", 0, 2)], 0, 1, SINK),
    "OutboxDisabled": ([(f"outbox_disabled{{{SINK}}}", 0, 1)], 0, 1, SINK),
    "OutboxPaused": ([(f"outbox_paused{{{SINK}}}", 0, 1), (f"outbox_off{{{SINK}}}", 0, 0)], 59, 60, SINK),
    "OutboxSegmentsNotFreed": ([(f"outbox_log_segments{{{LOG}}}", 15, 16), (f"outbox_log_oldest_segment_seconds{{{LOG}}}", 7200, 7200),
                                (f"outbox_log_retention_seconds{{{LOG}}}", 3600, 3600)], 9, 10, LOG),
    "OutboxScheduledOverdue": ([(f"outbox_log_scheduled_overdue_seconds{{{LOG}}}", 120, 121)], 0, 1, LOG),
    "OutboxLaneChangeWaits": ([(health("sink kafka: lanes"), 1, 0)], 29, 30, LOG + ', check="sink kafka: lanes"'),
    "OutboxOrderBroken": ([(f"outbox_errors_order_total{{{SINK}}}", "0", "+1")], -1, 1, SINK),
    "OutboxInternalErrors": ([(f"outbox_errors_internal_total{{{SINK}}}", "7", "+1")], 1, 6, SINK),
    "OutboxUnhealthy": ([(health("launcher"), 1, 0)], 4, 5, LOG + ', check="launcher"'),
    "OutboxMetricsGone": ([(f'{health("launcher")[:-1]}}}', 1, None)], 8, 11, LOG),
}
# Others that look alike and fire for the same values, or must not.
ALSO = {
    "OutboxPaused": [([(f"outbox_off{{{SINK}}}", 0, 1)], 59, 60, SINK)],
    "OutboxSegmentsNotFreed": [([(f"outbox_log_segments{{{LOG}}}", 3, 3), (f"outbox_log_oldest_segment_seconds{{{LOG}}}", 10800, 10801),
                                 (f"outbox_log_retention_seconds{{{LOG}}}", 3600, 3600)], 9, 10, LOG)],
    "OutboxRelayAbsent": [([(f"outbox_relays{{{SINK}}}", 0, 0), (f"outbox_lanes{{{SINK}}}", 0, 2), (f"outbox_halted{{{SINK}}}", 1, 1)], 60, None, SINK)],
    "OutboxScheduledOverdue": [([(f"outbox_log_scheduled_overdue_seconds{{{LOG}}}", 0, 121), (f"outbox_halted{{{SINK}}}", 1, 1)], 60, None, LOG),
                               ([(f"outbox_log_scheduled_overdue_seconds{{{LOG}}}", 0, 121), (f"outbox_halted{{{SINK}}}", 1, 1),
                                 (f"outbox_halted{{{SINK.replace('kafka', 'other')}}}", 0, 0)], 0, 1, LOG)],
    "OutboxUnhealthy": [([(health("sink kafka"), 1, 0), (health("segments"), 1, 0)], 60, None, LOG)],
}


def unit_test(alert, rule, series, silent, fires, labels):
    """One test of promtool: JSON is YAML."""
    def values(good, bad):
        if isinstance(good, str):  # a counter
            return f"{good}x9 {int(good) + 1}{bad}x90"
        return f"{good}x9 {'_' if bad is None else bad}x90"
    named = dict(re.findall(r'(\w+)="([^"]*)"', labels))
    summary = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda m: named.get(m[1], ""), rule["annotations"]["summary"])
    firing = [{"exp_labels": {**named, **rule["labels"]}, "exp_annotations": {"summary": summary}}]
    times = [(9, []), (10 + silent, [])] + ([(10 + fires, firing)] if fires is not None else [])
    return {"interval": "1m", "input_series": [{"series": name, "values": values(good, bad)} for name, good, bad in series],
            "alert_rule_test": [{"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": expected} for minute, expected in times]}


def test_each_alert_fires_when_it_should_and_not_before(tmp_path):
    checked = promtool("check", "rules", DIR / "alerts.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    rules = {}
    for block in (DIR / "alerts.yml").read_text().split("- alert: ")[1:]:
        rules[block.split("\n", 1)[0]] = {"labels": {"severity": re.search(r"severity: (\w+)", block)[1]},
                                          "annotations": {"summary": re.search(r"summary: '(.*)'", block)[1]}}
    assert set(rules) == set(CASES), "an alert has no test, or a test no alert"
    tests = [unit_test(name, rules[name], *case) for name, first in CASES.items() for case in (first, *ALSO.get(name, []))]
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": [str(DIR / "alerts.yml")], "evaluation_interval": "1m", "tests": tests}))
    ran = promtool("test", "rules", tmp_path / "test.yml")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # They would notice: without the trouble none of them passes.
    for test in tests:
        if test["alert_rule_test"][-1]["exp_alerts"]:
            for series in test["input_series"]:
                series["values"] = series["values"].split(" ")[0].replace("x9", "x99")
            (tmp_path / "control.yml").write_text(json.dumps({"rule_files": [str(DIR / "alerts.yml")], "evaluation_interval": "1m", "tests": [test]}))
            assert promtool("test", "rules", tmp_path / "control.yml").returncode != 0, test["alert_rule_test"][-1]["alertname"]
