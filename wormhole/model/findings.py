"""The findings of ``wormholectl doctor`` and ``init`` about a datastore. Every datastore returns this type."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from wormhole.problems.catalogue import code_of_check

__all__ = ["Finding", "LogGrowth", "Report", "SeenTable", "Severity"]


class Severity(Enum):
    """``OK``: as it should be; ``WARN``: works, with a limit to know; ``PROBLEM``: updates would be lost or wrong."""

    OK = "ok"
    WARN = "warn"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    ``check``: its short stable name. ``what``: the state that was found. ``because``: what follows from it.
    ``next_step``: what to do; a statement to paste is on a line of its own. ``code``: the code of the problem; empty:
    the entries of :mod:`wormhole.problems` give it for the check.
    """

    check: str
    severity: Severity
    what: str
    because: str = ""
    next_step: str = ""
    code: str = ""

    @property
    def known_code(self) -> str:
        """The code of the problem; empty: there is no problem, or the check is of a package that declares no code."""
        return "" if self.severity is Severity.OK else self.code or code_of_check(self.check)


@dataclass(frozen=True, slots=True)
class SeenTable:
    """A table of the datastore.

    ``database``: empty if the datastore has none. ``key_columns``: the number of columns of the key in the log, 0
    without one. ``rows``: the estimated number of its rows; ``None``: not known.
    """

    database: str
    table: str
    key_columns: int = 1
    rows: int | None = None

    @property
    def name(self) -> str:
        """The table's name in updates."""
        return f"{self.database}.{self.table}" if self.database else self.table


@dataclass(frozen=True, slots=True)
class LogGrowth:
    """How much log was written: ``bytes`` in the last ``seconds``, and how that was measured. ``unknown``: why it is
    not known, empty when it is.
    """

    bytes: int = 0
    seconds: float = 0.0
    how: str = ""
    unknown: str = ""

    @property
    def rate(self) -> float:
        """Bytes per second; 0 if it is not known."""
        return self.bytes / self.seconds if self.seconds > 0 and not self.unknown else 0.0


@dataclass(slots=True)
class Report:
    """All findings about one datastore.

    ``facts``: short texts about the datastore, such as its version, by name. ``tables``: the tables that were seen.
    ``growth``: the growth of its log; ``None`` if it was not requested. Growth is not rendered.
    """

    url: str
    facts: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    tables: list[SeenTable] = field(default_factory=list)
    growth: LogGrowth | None = None

    @property
    def severity(self) -> Severity:
        """The worst of the findings."""
        found = {finding.severity for finding in self.findings}
        return next((s for s in (Severity.PROBLEM, Severity.WARN) if s in found), Severity.OK)

    def add(
        self, check: str, severity: Severity, what: str, because: str = "", next_step: str = "", code: str = ""
    ) -> None:
        """Add one finding."""
        self.findings.append(Finding(check, severity, what, because, next_step, code))

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "url": self.url,
            "severity": self.severity.value,
            "facts": dict(self.facts),
            "findings": [
                {
                    "check": f.check,
                    "code": f.known_code or None,
                    "severity": f.severity.value,
                    "what": f.what,
                    "because": f.because,
                    "next_step": f.next_step,
                }
                for f in self.findings
            ],
        }

    def to_json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(self.as_dict(), ensure_ascii=False)
