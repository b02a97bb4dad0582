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
    report.add("retention", Severity.WARN, "hm", "because", "next")
    assert json.loads(report.to_json()) == {
        "url": "rocksdb:///x",
        "severity": "warn",
        "facts": {"library": "9"},
        "findings": [
            {
                "check": "retention",
                "code": "log-kept-short",
                "severity": "warn",
                "what": "hm",
                "because": "because",
                "next_step": "next",
            }
        ],
    }


def test_a_finding_has_the_code_of_its_check_where_something_is_wrong() -> None:
    assert Finding("tls", Severity.WARN, "what").known_code == "connection-exposed"
    assert Finding("publishers", Severity.PROBLEM, "what", code="log-stuck").known_code == "log-stuck"
    assert Finding("tls", Severity.OK, "what").known_code == ""
    assert Finding("of another package", Severity.WARN, "what").known_code == ""
