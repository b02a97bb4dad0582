"""Shows an audit as a table, as sentences and as an object."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final

from spark_replay.audit.auditor import Audit
from spark_replay.audit.compare import AuditFinding, AuditWindow
from wormhole.wire.tally import WINDOW_S
from wormholectl.show.printer import print_table, print_text, span, utc

__all__ = ["audit_object", "show_audit"]


def audit_object(application: str, audited: Audit) -> dict[str, Any]:
    """The audit for programs (docs/cli-schema.json: ``audit``)."""
    return {
        "application": application,
        "whole": audited.whole,
        "windows": [
            {
                "flow": one.flow,
                "begin": _time(one.window),
                "archived": one.archived,
                "delivered": one.delivered,
                "processed": one.processed,
                "set_aside": one.set_aside,
                "duplicates": one.duplicates,
                "lost": one.lost,
                "unprocessed": one.unprocessed,
                "unaudited": one.unaudited,
                "replayed": one.replayed,
                "replayed_processed": one.replayed_processed,
                "pending": one.pending,
                "state": one.state,
                "complete_s": one.complete_s if one.complete_s is None or math.isfinite(one.complete_s) else None,
            }
            for one in audited.windows
        ],
        "findings": [
            {
                "kind": one.kind,
                "flow": one.flow,
                "begin": _time(one.window),
                "updates": one.updates,
                "update": one.update,
                "where": one.where,
            }
            for one in audited.findings
        ],
        "unbooked": list(audited.uncounted),
        "unarchived": list(audited.unarchived),
    }


def _time(window: int) -> str | None:
    return utc(window * WINDOW_S) if window else None


def show_audit(application: str, audited: Audit) -> None:
    """Show a table of windows, then each finding, then the verdict."""
    columns = (
        "FLOW",
        "WINDOW (UTC)",
        "ARCHIVED",
        "DELIVERED",
        "PROCESSED",
        "SET ASIDE",
        "DUPLICATES",
        "LOST",
        "STATE",
        "99.9 % WITHIN",
    )
    print_table(columns, [_row(one) for one in audited.windows], f"{application}: no updates in this time")
    for one in audited.findings:
        print_text(_finding(one))
    for flow in audited.uncounted:
        print_text(f"{flow} has no delivery counts under the filter that {application} has now: unaudited")
    for flow in audited.unarchived:
        print_text(f"{flow}: the archive has nothing of its shard: unaudited")
    if audited.whole:
        beside = (
            audited.uncounted or audited.unarchived or any(one.unaudited or one.replayed for one in audited.windows)
        )
        print_text("nothing is lost of what could be compared" if beside else "nothing is lost")


def _row(one: AuditWindow) -> tuple[str, ...]:
    within = "" if one.complete_s is None else "longer" if math.isinf(one.complete_s) else span(one.complete_s)
    state = one.state
    if one.replayed:
        state = f"replayed, {one.replayed}" if state == "replayed" else f"{state}, {one.replayed} replayed in part"
    if one.unaudited:
        state = f"unaudited, {one.unaudited}" if state == "unaudited" else f"{state}, {one.unaudited} unaudited"
    if one.pending:
        state += f", {one.pending} to come"
    return (
        one.flow,
        _when(one.window),
        str(one.archived),
        str(one.delivered),
        "?" if one.processed is None else str(one.processed),
        str(one.set_aside or ""),
        "?" if one.duplicates is None else str(one.duplicates or ""),
        str(one.lost + one.unprocessed or ""),
        state,
        within,
    )


def _when(window: int) -> str:
    return f"{datetime.fromtimestamp(window * WINDOW_S, UTC):%Y-%m-%d %H:%M}" if window else "no time"


_KINDS: Final = {
    "lost": "lost: archived, and never delivered",
    "unprocessed": "lost: delivered, and no callback returned",
    "repaired": "repaired by a replay: delivered, and no callback had returned",
    "differs": "not the same ones: as many were archived as delivered, the checksums differ",
    "set_aside": "set aside: skipped or parked",
    "unarchived": "delivered, and not in the archive",
}


def _finding(one: AuditFinding) -> str:
    what = f"update {one.update}" if one.update else f"{one.updates} updates"
    return f"{one.flow}, {_when(one.window)}: {what}: {_KINDS[one.kind]}{f' ({one.where})' if one.where else ''}"
