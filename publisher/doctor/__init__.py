"""Says what matters for tailing a datastore before anything is tailed."""

from __future__ import annotations

from publisher.doctor.report import Finding, Report, Severity

__all__ = ["Finding", "Report", "Severity"]
