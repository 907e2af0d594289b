"""The rules of docs/alarms.rules.yml use metrics that there are, and Prometheus' own tool takes them."""

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from support.archives import letter

from dlq.archive import segments
from dlq.archive.storage.store import LocalStore
from dlq.reports.formats import metrics
from dlq.reports.formats.metrics import RunFacts

DOCS = Path(__file__).parents[2] / "docs"
RULES: list[dict[str, Any]] = yaml.safe_load((DOCS / "alarms.rules.yml").read_text(encoding="utf-8"))[
    "groups"
][0]["rules"]


def named(expression: str) -> set[str]:
    return set(re.findall(r"\bdlq_\w+", expression))


def test_each_rule_names_a_metric_and_the_label_that_it_has(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "archive"))
    segments.commit(store, "orders", "20261121T000000-abcd", 1, "drain", [letter(1)], {})
    source = {
        "source": "orders", "open": 1, "oldest": "2026-11-22T16:13:00Z", "new_failures": 1, "regressed": 1,
    }  # fmt: skip
    report = {"sources": [source], "counts": {"in_doubt": 1}}
    facts = RunFacts([{"source": "orders", "snapshot": 1}], 1.0, 0, 1.0, 1.0)
    samples = {metric.name: [*metric.samples] for metric in metrics.gather(store, report, facts)}
    for rule in RULES:
        (name,) = named(rule["expr"])
        (labels,) = samples[name]
        says_which = "$labels.source" in str(rule["annotations"])
        assert says_which == (labels == (("source", "orders"),)), rule["alert"]


def test_the_page_shows_rules_of_the_file_and_names_each_alert() -> None:
    page = (DOCS / "alarms.md").read_text(encoding="utf-8")
    shown = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    known = {rule["alert"]: rule["expr"] for rule in RULES}
    assert {rule["alert"]: rule["expr"] for rule in shown}.items() <= known.items()
    advice = page.partition("## When an alarm fires")[2]
    assert [alert for alert in known if f"`{alert}`" not in advice] == []


def test_prometheus_takes_the_rules_and_each_fires() -> None:
    tests = Path(__file__).with_name("alarms.test.yml")
    done = subprocess.run(
        ["promtool", "test", "rules", str(tests)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    fired = {rule["alert"] for rule in RULES}
    assert set(re.findall(r'alertname="(\w+)"', tests.read_text(encoding="utf-8"))) == fired
