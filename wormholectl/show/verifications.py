"""Shows the results of comparing an application's rows with its tables, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from wormhole.model.visible import few
from wormhole.wire.backfills import has_ended, refused_tables
from wormhole.wire.v1 import admin_pb2, push_pb2
from wormhole.wire.verification_status import are_equal, has_no_table, remaining, together, verifies
from wormholectl.show.columns import FIGURE, ShownColumn, ShownTable
from wormholectl.show.lists import problem_object
from wormholectl.show.printer import counted, next_step_lines, print_table, print_text

__all__ = ["VERIFIED", "mode_of", "show_verified"]

_MOST_SHOWN: Final = 100
_MODES: Final = {push_pb2.VERIFY_COMPARE: "compare", push_pb2.VERIFY_REPAIR: "repair"}


def mode_of(status: admin_pb2.BackfillStatus) -> str | None:
    """``compare`` or ``repair``; ``None`` for a backfill whose rows are delivered."""
    return _MODES.get(status.verify)


def _differences(one: admin_pb2.TableVerification) -> list[dict[str, Any]]:
    return [{"kind": found.kind, "key": found.key, "columns": list(found.columns)} for found in one.differences]


VERIFIED: Final = ShownTable[admin_pb2.TableVerification](
    ShownColumn("TABLE", "table", lambda one: one.table),
    ShownColumn("COMPARED", "compared", lambda one: one.compared, FIGURE),
    ShownColumn("NOT COMPARED", "not_compared", lambda one: one.not_compared, FIGURE),
    ShownColumn("DIFFERS", "differs", lambda one: one.differs, FIGURE),
    ShownColumn("MISSING", "missing", lambda one: one.missing, FIGURE),
    ShownColumn("EXTRA", "extra", lambda one: one.extra, FIGURE),
    ShownColumn("REPAIRED", "repaired", lambda one: one.repaired, FIGURE),
    ShownColumn("REMOVED", "removed", lambda one: one.removed, FIGURE),
    ShownColumn("", "ended", lambda one: one.ended, lambda ended: "" if ended else "not ended"),
    ShownColumn(None, "trouble", lambda one: problem_object(one.trouble) if one.trouble.text else None),
    ShownColumn(None, "differences", _differences),
    titles=("TABLE", "COMPARED", "DIFFERS", "MISSING", "EXTRA", "NOT COMPARED", "REPAIRED", "REMOVED", ""),
)
"""The fields of a table's result. In JSON, it is a ``table-verification`` of docs/cli-schema.json."""


def show_verified(flows: Sequence[tuple[str, admin_pb2.BackfillStatus]]) -> None:
    """Print the counts of each table, the rows that differ, why rows were not compared, and the verdict.

    ``flows``: names and backfills of flows; flows without a verification are ignored.
    """
    known = [(name, status) for name, status in flows if verifies(status)]
    if not known:
        return
    statuses = [status for _, status in known]
    print_text("")
    VERIFIED.show(together(statuses), "nothing was compared yet")
    found = [(name, table, one) for name, status in known for table in status.verified for one in table.differences]
    if found:
        print_text("")
        rows = [
            (flow, table.table, one.kind, one.key, ", ".join(one.columns)) for flow, table, one in found[:_MOST_SHOWN]
        ]
        print_table(("FLOW", "TABLE", "WHAT", "KEY", "COLUMNS"), rows, "")
    total = sum(one.differs + one.missing + one.extra for one in together(statuses))
    if total > min(len(found), _MOST_SHOWN):
        print_text(f"{total - min(len(found), _MOST_SHOWN):,} more: --json has the first 1,000 of each table and flow")
    for line in (*_troubles(known), *_verdict(known)):
        print_text(line)


def _troubles(flows: Sequence[tuple[str, admin_pb2.BackfillStatus]]) -> Iterator[str]:
    """The reasons why rows were not compared, each once, with its tables."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for _, status in flows:
        for one in status.verified:
            if one.trouble.text:
                found.setdefault((one.trouble.text, one.trouble.hint), {})[one.table] = None
    for (text, hint), tables in found.items():
        yield f"{', '.join(tables)}: {text}"
        if hint:
            yield from (f"  {line}" for line in next_step_lines(hint))


def _verdict(flows: Sequence[tuple[str, admin_pb2.BackfillStatus]]) -> Iterator[str]:
    application = flows[0][0].partition("/")[0]
    statuses = [status for _, status in flows]
    if not all(map(has_ended, statuses)):
        return
    tables = together(statuses)
    rows, left = sum(one.compared for one in tables), sum(map(remaining, tables))
    if are_equal(statuses):
        mended = sum(one.repaired + one.removed for one in tables)
        compared = f"{counted(rows, 'row')} compared"
        yield (
            f"{application} equals its tables now: {compared}, {counted(mended, 'difference')} repaired"
            if mended
            else f"{application} equals its tables: {compared}"
        )
        return
    if left:
        yield f"{application} does not equal its tables: {counted(left, 'difference')} left"
        if not any(one.repaired + one.removed for one in tables):
            yield f"  next: wormholectl verify {application} --repair"
    if refused := sorted({table.table for status in statuses for table in refused_tables(status)}):
        yield f"not compared, as {'its' if len(refused) == 1 else 'their'} rows cannot be read: {few(refused)}"
    if silent := sum(one.not_compared for one in tables):
        yield f"{counted(silent, 'row')} could not be compared (parked, skipped, or changed meanwhile)"
        yield "  next: wormholectl flows dead-letters list FLOW shows what is parked; then compare again"
    if all(map(has_no_table, statuses)):
        yield f"nothing was compared: no table that {application} wants exists"
        return
    for name, status in flows:
        if status.state != "done":
            yield f"{name}: {status.state} before everything was compared"
        elif not status.verified and not refused_tables(status) and not has_no_table(status):
            yield f"{name}: no result is known, since its publisher was started again"
