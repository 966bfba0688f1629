"""Alerts and dashboard: promtool reads them, raises them where it should, and every metric that they name exists."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

from common.telemetry import measures
from tests.support.machine import need

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "helm/muster/files"
RULES = FILES / "alerts.yaml"
DASHBOARD = json.loads((FILES / "dashboard.json").read_text())
DOCUMENT = (ROOT / "docs/metrics.md").read_text()
# (an alert, series by a minute, whether it is raised after half an hour)
CASES = [
    ("MusterDatabaseAway", ["muster_database_up 0x30"], True),
    ("MusterDatabaseAway", ["muster_database_up 1x30"], False),
    ("MusterAway", ["muster_database_up 1x10"], True),
    ("MusterAway", ["muster_database_up 0x30"], False),
    ("MusterQueueStuck", ["oldest 2000x30", "slots 8x30", "used 2x30", "wanted 4x30"], True),
    ("MusterQueueStuck", ["oldest 2000x30", "slots 8x30", "used 6x30", "wanted 4x30"], False),
    ("MusterQueueStuck", ["oldest 60x30", "slots 8x30", "used 2x30", "wanted 4x30"], False),
    ("MusterClusterUnseen", ['muster_watch_age_seconds{cluster="lab",resource="pods"} 400x30'], True),
    ("MusterClusterUnseen", ['muster_watch_age_seconds{cluster="lab",resource="pods"} 30x30'], False),
    ("MusterAgentsSilent", ['muster_silent_replicas{team="nlp",queue="train"} 2x30'], True),
    ("MusterAgentsSilent", ['muster_silent_replicas{team="nlp",queue="train"} 0x30'], False),
    ("MusterAgentsSilent", ['muster_silent_replicas{team="nlp",queue="train"} 0x23 2x5'], False),  # for six minutes
    ("MusterIngestSlow", ["batches 1 0+10x30", "batches 5 0+100x30", "batches +Inf 0+100x30"], True),
    ("MusterIngestSlow", ["batches 1 0+100x30", "batches 5 0+100x30", "batches +Inf 0+100x30"], False),
    ("MusterServerErrors", ["requests 2xx 0+100x30", "requests 5xx 0+5x30"], True),
    ("MusterServerErrors", ["requests 2xx 0+1000x30", "requests 5xx 0+5x30"], False),
    ("MusterHintsLost", ["muster_doorbell_failures_total 0+5x30"], True),
    ("MusterHintsLost", ["muster_doorbell_failures_total 0x30"], False),
    ("MusterHintsLost", ["muster_doorbell_failures_total 0x20 60x8"], False),  # Redis was away for a minute
]
SHORT = {
    "oldest": "muster_queue_oldest_wait_seconds", "slots": "muster_queue_slots", "used": "muster_queue_slots_used",
    "wanted": "muster_queue_slots_wanted",
}  # fmt: skip
LABELLED = {
    "batches": 'muster_ingest_batch_seconds_bucket{{le="{}"}}',
    "requests": 'muster_http_request_seconds_count{{status="{}"}}',
}


@pytest.fixture(scope="module")
def promtool() -> str:
    if not shutil.which("promtool") and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "prometheus"]):
            subprocess.run(["apt-get", *words], env=quiet, capture_output=True, check=False)
    need(bool(shutil.which("promtool")), "promtool is not installed; apt-get install prometheus")
    return shutil.which("promtool") or ""


def run(promtool: str, *words: object) -> str:
    done = subprocess.run([promtool, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_reads_the_rules(promtool):
    assert f"{len(rules())} rules found" in run(promtool, "check", "rules", RULES)


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@pytest.mark.parametrize(("alert", "series", "is_raised"), CASES)
def test_an_alert_is_raised_where_it_should_be(promtool, tmp_path, alert, series, is_raised):
    (rule,) = [one for one in rules() if one["alert"] == alert]
    given = [dict(zip(("series", "values"), of(one), strict=True)) for one in series]
    group = {"name": "one", "rules": [{**rule, "annotations": {}}]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [group]}))
    wanted = [{"exp_labels": labels(rule, series)}] if is_raised else []
    test = {
        "interval": "1m",
        "input_series": given,
        "alert_rule_test": [{"eval_time": "29m", "alertname": alert, "exp_alerts": wanted}],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [test]}))
    run(promtool, "test", "rules", tmp_path / "test.yaml")


def of(text: str) -> tuple[str, str]:
    """A series and its values, from the short form of CASES."""
    name, values = text.split(" ", 1)
    if name in SHORT:
        return f'{SHORT[name]}{{team="nlp",queue="train"}}', values
    if name in LABELLED:
        label, values = values.split(" ", 1)
        return LABELLED[name].format(label), values
    return name, values


def labels(rule: dict, series: list[str]) -> dict[str, str]:
    """Return the labels of the raised alert: the rule's own, and those that its expression keeps."""
    kept = {"team": "nlp", "queue": "train"} if series[0].split(" ")[0] in SHORT else {}
    kept |= dict(re.findall(r'(\w+)="(\w+)"', series[0]))
    return {**rule["labels"], **kept}


def known() -> set[str]:
    """Every series of ours: what measures define, and what collectors are written to tell."""
    found = set()
    for one in vars(measures).values():
        if isinstance(one, MetricWrapperBase):
            for family in one.describe():
                ends = {"histogram": ("_count", "_sum", "_bucket"), "counter": ("_total",)}.get(family.type, ("",))
                found |= {family.name + end for end in ends}
    return found | set(re.findall(r'"(muster_\w+)"', (ROOT / "controlplane/telemetry/metrics.py").read_text()))


def queries() -> dict[str, str]:
    """Return the dashboard's PromQL by the title of its panel, with any value in place of Grafana's variables."""
    found = {
        f"{panel['title']}, {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    }
    for one in DASHBOARD["templating"]["list"]:
        if one["type"] == "query":  # `label_values` is Grafana's own; its first argument is PromQL
            found[f"variable {one['name']}"] = re.fullmatch(r"label_values\((.+), \w+\)", one["definition"])[1]
            assert one["query"]["query"] == one["definition"]
    return {name: re.sub(r"\$\{?\w+\}?", ".*", expr) for name, expr in found.items()}


def test_promtool_reads_each_query_of_the_dashboard(promtool, tmp_path):
    """As recording rules: promtool has no command that only parses an expression."""
    rules = [
        {"record": f"query:{number}", "expr": expr, "labels": {"of": name}}
        for number, (name, expr) in enumerate(queries().items())
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run(promtool, "check", "rules", tmp_path / "rules.yaml")
    assert len(rules) > len(DASHBOARD["panels"])


def test_every_metric_that_is_named_exists():
    exprs = [*(rule["expr"] for rule in rules()), *queries().values()]
    named = {name for expr in exprs for name in re.findall(r"\b(?:muster|process|python)_\w+", expr)}
    of_python = {one.name for family in REGISTRY.collect() for one in family.samples}
    assert named - known() - of_python == set() and len(named) > 15


def test_the_document_names_every_metric_and_alert_and_no_others():
    bare = {re.sub(r"_(count|sum|bucket)$", "", name) for name in known()}
    assert set(re.findall(r"`(muster_\w+)`", DOCUMENT)) == bare
    assert set(re.findall(r"`(Muster\w+)`", DOCUMENT)) == {rule["alert"] for rule in rules()}
