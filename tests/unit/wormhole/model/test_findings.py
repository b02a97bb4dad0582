from __future__ import annotations

import json

from wormhole.model.findings import Finding, Report, Severity


def test_the_worst_finding_counts() -> None:
    report = Report("rocksdb:///x", {"library": "9"})
    worst = [report.severity.value]
    for severity in (Severity.OK, Severity.WARN, Severity.PROBLEM, Severity.OK):
        report.add("check", severity, "what", "because", "next")
        worst.append(report.severity.value)
    assert worst == ["ok", "ok", "warn", "problem", "problem"]
    assert report.findings[1] == Finding("check", Severity.WARN, "what", "because", "next")


def test_as_json() -> None:
    report = Report("rocksdb:///x", {"library": "9"})
    report.add("b", Severity.WARN, "hm", "because", "next")
    assert json.loads(report.to_json()) == {
        "url": "rocksdb:///x",
        "severity": "warn",
        "facts": {"library": "9"},
        "findings": [{"check": "b", "severity": "warn", "what": "hm", "because": "because", "next_step": "next"}],
    }
