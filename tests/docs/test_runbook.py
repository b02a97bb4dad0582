"""What an operator gets beside the code: the page of metrics, the alerts, the dashboard and the runbook name the
same things as the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from scripts.metrics_page import PAGE, filled
from tests.support.command_line import inside
from wormhole.metrics import METRICS, Kind
from wormhole.problems.catalogue import entries
from wormholectl.app import app

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana.json"
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()

_SERIES = {
    f"{metric.name}{suffix}"
    for metric in METRICS
    for suffix in (("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",))
}
_LABELS = {label for metric in METRICS for label in metric.labels} | {"le"}


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def check_expression(expression: str) -> None:
    """Every series is one of the list, every label it selects or groups by is one of that series', and brackets
    close."""
    series = set(re.findall(r"\bwormhole_\w+", expression))
    assert series
    assert series <= _SERIES, series - _SERIES
    for name, selector in re.findall(r"\b(wormhole_\w+)\{([^}]*)\}", expression):
        (metric,) = [one for one in METRICS if name.removesuffix("_bucket") == one.name or name == one.name]
        assert set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector)) <= set(metric.labels)
    for grouped in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression):
        assert {label.strip() for label in grouped.split(",")} <= _LABELS
    for opening, closing in ("()", "{}", "[]"):
        assert expression.count(opening) == expression.count(closing)


def shown(section: str) -> list[str]:
    """Titles of the runbook's entries under a heading."""
    text = RUNBOOK.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^### (\S+)$", text, re.MULTILINE)


def test_the_page_of_metrics_is_as_the_list_says() -> None:
    assert PAGE.read_text() == filled(PAGE.read_text()), "run python -m scripts.metrics_page"
    assert "wormhole_flow_lag_seconds" in filled(PAGE.read_text())


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_names_what_there_is_and_leads_to_its_entry(alert: dict[str, Any]) -> None:
    check_expression(alert["expr"])
    assert set(alert) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[smhd]", alert.get("for", "1m"))
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    assert (ROOT / page).exists()
    assert anchor == alert["alert"].lower()
    # A placeholder that the expression does not give stays empty in the message.
    named = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]))
    grouped = re.match(r"max by \(([^)]*)\)", alert["expr"])
    if grouped is not None:
        assert named <= {label.strip() for label in grouped[1].split(",")}
    else:
        metric = min(
            (one for one in METRICS if one.name in alert["expr"]), key=lambda one: alert["expr"].index(one.name)
        )
        assert named <= set(metric.labels)


def test_every_alert_and_every_code_has_its_entry_and_no_other() -> None:
    assert shown("Alerts") == [alert["alert"] for alert in alerts()]
    assert shown("Codes") == list(entries())


_PARTS = ["Symptom", "What it means", "Look at", "Do"]


def test_every_entry_says_what_it_means_and_what_to_do() -> None:
    for title, text in re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", RUNBOOK, re.MULTILINE | re.DOTALL):
        assert re.findall(r"^- \*\*(.+?)\*\*: \S", text, re.MULTILINE) in (_PARTS, [*_PARTS, "Codes"]), title


def test_every_command_of_the_runbook_is_one() -> None:
    root = typer.main.get_command(app)
    quoted = re.findall(r"`wormholectl ([^`]+)`", RUNBOOK)
    assert len(quoted) > 20
    for words in quoted:
        command: Any = root
        for word in words.split():
            if word not in inside(command):
                break
            command = inside(command)[word]
        assert command is not root or words.startswith("--"), words
        options = {name for parameter in command.params for name in parameter.opts}
        for option in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", words):
            assert option in options, f"wormholectl {words}: no {option}"


def test_every_alert_and_series_named_in_the_runbook_exists() -> None:
    assert set(re.findall(r"\bWormhole[A-Z]\w+", RUNBOOK)) <= {alert["alert"] for alert in alerts()}
    for name in re.findall(r"`(wormhole_\w+)`", RUNBOOK):
        assert name in _SERIES


def test_the_dashboard_shows_what_there_is() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    places = set()
    for panel in dashboard["panels"]:
        places.add((panel["gridPos"]["x"], panel["gridPos"]["y"]))
        for target in panel["targets"]:
            check_expression(target["expr"].replace("$dataset", ".*").replace("$log", ".*"))
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert len(places) == len(dashboard["panels"]) > 10
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            check_expression(variable["query"])
