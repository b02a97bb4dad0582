"""Backfills of flows: tables and notes for people, objects for programs, and one line while they run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.problem import Problem
from wormhole.wire.backfills import has_ended, refused_tables
from wormhole.wire.problems import problem_from
from wormhole.wire.v1 import admin_pb2
from wormhole.wire.verification_status import is_settled, verifies
from wormholectl.show.printer import (
    counted,
    next_step_lines,
    print_json,
    print_progress,
    print_table,
    print_text,
    print_warnings,
    size,
    span,
)
from wormholectl.show.verifications import mode_of, show_verified, verified_objects

__all__ = [
    "FlowBackfill",
    "Progress",
    "backfill_object",
    "is_complete",
    "next_steps",
    "progress_line",
    "share_of",
    "show_backfills",
    "show_changed",
    "show_planned",
]

_WIDTH: Final = 24
_LINE_EVERY_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class FlowBackfill:
    """The backfill of one flow, as its publisher reports it; ``None``: none was ever asked for."""

    publisher: str
    flow: str
    status: admin_pb2.BackfillStatus | None


def is_complete(status: admin_pb2.BackfillStatus) -> bool:
    """Whether the rows of every table that was asked for were sent; of a verification, whether nothing differs now."""
    return is_settled(status) if verifies(status) else status.state == "done" and not refused_tables(status)


def share_of(statuses: Iterable[admin_pb2.BackfillStatus]) -> float | None:
    """How much of the rows of all is sent, 0 to 1; ``None``: the servers do not say how many rows there are."""
    shares = [1.0 if one.state == "done" else one.share if one.HasField("share") else None for one in statuses]
    known = [one for one in shares if one is not None]
    return sum(known) / len(known) if known and len(known) == len(shares) else None


def progress_line(backfills: Sequence[FlowBackfill]) -> str:
    """One line: how far, how many rows, how fast, for how long still, and why it waits."""
    known = [one.status for one in backfills if one.status is not None]
    share = share_of(known)
    bar = "" if share is None else f"[{'#' * int(share * _WIDTH):.<{_WIDTH}}] {share:4.0%}  "
    rows = sum(one.rows for one in known)
    left = [one.left_s for one in known if not has_ended(one) and one.HasField("left_s")]
    read = {one.publisher: one.status.bytes_per_s for one in backfills if one.status and not has_ended(one.status)}
    parts = [
        f"{bar}{counted(rows, 'row')}  {sum(one.rows_per_s for one in known):,.0f}/s  {size(sum(read.values()))}/s"
    ]
    if left:
        parts.append(f"about {span(max(left))} left")
    parts.append(f"{sum(map(has_ended, known))} of {counted(len(known), 'flow')} ended")
    waits = next((one for one in known if not has_ended(one) and (one.paused or one.waits.text)), None)
    if waits is not None:
        parts.append(f"paused by {waits.paused}" if waits.paused else f"waits: {waits.waits.text}")
    return "  ".join(parts)


class Progress:
    """The line above on standard error while backfills run: anew in a terminal, now and then elsewhere; objects on
    standard output for programs.
    """

    def __init__(self, application: str, *, as_json: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        self._application = application
        self._as_json = as_json
        self._clock = clock
        self._line_at = 0.0
        self._problems: Sequence[str] = ()

    def show(self, backfills: Sequence[FlowBackfill], problems: Sequence[str]) -> None:
        """How far they are. ``problems``: of publishers that do not answer; each is shown once."""
        if problems != self._problems:
            self._problems = problems
            print_warnings(f"{problem}; trying again" for problem in problems)
        if not backfills:
            return
        if self._as_json:
            known = [one.status for one in backfills if one.status is not None]
            rows = sum(one.rows for one in known)
            print_json({"application": self._application, "progress": {"rows": rows, "share": share_of(known)}})
        elif sys.stderr.isatty():
            print_progress(progress_line(backfills))
        elif self._clock.monotonic() >= self._line_at:
            self._line_at = self._clock.monotonic() + _LINE_EVERY_S
            print_text(progress_line(backfills), error=True)

    def close(self) -> None:
        """Leave an empty line."""
        print_progress("")


def show_backfills(backfills: Sequence[FlowBackfill], silent: Sequence[tuple[str, str]], as_json: bool) -> None:
    """Each flow, each of its tables, and the next steps. ``silent``: address and problem of publishers that do not
    answer.
    """
    if as_json:
        unreachable = [{"address": address, "problem": problem} for address, problem in silent]
        print_json({"flows": [_flow_object(one) for one in backfills], "unreachable": unreachable})
        return
    rows = [(one.flow, *_flow_row(one.status)) for one in backfills if one.status is not None]
    columns = ("FLOW", "GENERATION", "STATE", "ROWS SENT", "SHARE", "ROWS/S", "TIME LEFT", "ASKED BY", "WAITS FOR")
    print_table(columns, rows, "no flow has a backfill: `wormholectl backfill start APP` begins one")
    tables = [(one.flow, *_table_row(table)) for one in backfills if one.status for table in one.status.progress]
    if tables:
        print_text("")
        print_table(("FLOW", "TABLE", "STATE", "ROWS SENT", "TABLE HOLDS"), tables, "")
    if rows:
        print_text("", "SHARE, TIME LEFT and TABLE HOLDS follow from the server's estimate of the rows of a table.")
    for line in next_steps(one.status for one in backfills if one.status is not None):
        print_text(line)
    show_verified([(one.flow, one.status) for one in backfills if one.status is not None])


def next_steps(statuses: Iterable[admin_pb2.BackfillStatus]) -> list[str]:
    """Why backfills wait, and tables that cannot be read: each reason once, with its next step."""
    found: dict[Problem, dict[str, None]] = {}
    for status in statuses:
        if not has_ended(status) and status.waits.text:
            found.setdefault(problem_from(status.waits), {})["it waits"] = None
        for table in refused_tables(status):
            refused = problem_from(table.refused)
            found.setdefault(refused, {})[f"{table.table} is refused"] = None
    return list(_problem_lines(found))


def _notes(notes: Iterable[str]) -> list[str]:
    return [f"note: {note}" for note in notes]


def _problem_lines(found: dict[Problem, dict[str, None]]) -> Iterator[str]:
    for problem, names in found.items():
        yield f"{', '.join(names)}: {problem.text}"
        if problem.hint:
            yield from (f"  {line}" for line in next_step_lines(problem.hint))


def show_planned(application: str, planned: Sequence[FlowBackfill], notes: Sequence[str], as_json: bool) -> None:
    """What a start would do: the tables of each log, with the server's estimate of their rows, and the flows."""
    compared = any(one.status is not None and verifies(one.status) for one in planned)
    if as_json:
        _print_changed(application, "start", planned, notes, made=False)
        return
    tables: dict[tuple[str, str], admin_pb2.BackfillTable] = {}
    for one in planned:
        for table in one.status.progress if one.status is not None else ():
            # Each shard has its part of a table.
            before = tables.get((one.publisher, table.table))
            tables[one.publisher, table.table] = table if before is None else _together(before, table)
    rows = [(name, _estimate(table), _refusal(table), publisher) for (publisher, name), table in tables.items()]
    print_table(("TABLE", "ABOUT ROWS", "", "PUBLISHER"), rows, "which tables there are is not known yet")
    wanted = [table for table in tables.values() if table.state != "refused"]
    estimates = [table.rows_estimate for table in wanted if table.HasField("rows_estimate")]
    known = len(estimates) == len(wanted)
    total = f"about {counted(sum(estimates), 'row')}, by the server's estimate" if estimates and known else "rows"
    print_text(
        f"{counted(len(planned), 'flow')} of {application} would {'compare' if compared else 'receive'} {total}, of "
        f"{counted(len(wanted), 'table')}; changes go on meanwhile"
    )
    lines = [*next_steps(one.status for one in planned if one.status is not None), *_notes(notes)]
    for line in lines:
        print_text(line)


def show_changed(
    application: str,
    what: str,
    changed: Sequence[tuple[FlowBackfill, FlowBackfill]],
    notes: Sequence[str],
    *,
    made: bool,
    as_json: bool,
) -> None:
    """What a change did to each flow, or what it would do. ``changed``: before and after."""
    if as_json:
        _print_changed(application, what, [after for _, after in changed], notes, made=made)
        return
    rows = [(after.flow, _state(before), _state(after)) for before, after in changed]
    print_text(f"backfill of {application} {'was changed' if made else 'would change'}:")
    print_table(("FLOW", "BEFORE", "AFTER"), rows, "")
    for line in _notes(notes):
        print_text(line)


def backfill_object(status: admin_pb2.BackfillStatus) -> dict[str, Any]:
    """A backfill for programs (docs/cli-schema.json: ``flow-backfill``)."""
    return {
        "generation": status.generation,
        "state": status.state,
        "who": status.who,
        "started_s": status.started_s,
        "tables": list(status.tables),
        "where": status.where or None,
        "rate": status.rate or None,
        "paused": status.paused or None,
        "waits": _problem_object(status.waits) if status.waits.text else None,
        "table": status.table or None,
        "lost": status.lost or None,
        "rows": status.rows,
        "rows_estimate": status.rows_estimate if status.HasField("rows_estimate") else None,
        "share": status.share if status.HasField("share") else None,
        "rows_per_s": status.rows_per_s,
        "bytes_per_s": status.bytes_per_s,
        "left_s": status.left_s if status.HasField("left_s") else None,
        "progress": [_table_object(table) for table in status.progress],
        "verify": mode_of(status),
        "equal": is_settled(status) if verifies(status) else None,
        "verified": verified_objects(status),
    }


def _table_object(table: admin_pb2.BackfillTable) -> dict[str, Any]:
    return {
        "table": table.table,
        "state": table.state,
        "rows": table.rows,
        "rows_estimate": table.rows_estimate if table.HasField("rows_estimate") else None,
        "refused": _problem_object(table.refused) if table.state == "refused" else None,
    }


def _problem_object(problem: admin_pb2.Problem) -> dict[str, Any]:
    return {"code": problem.code or None, "text": problem.text, "next": problem.hint or None}


def _flow_object(one: FlowBackfill) -> dict[str, Any]:
    backfill = None if one.status is None else backfill_object(one.status)
    return {"publisher": one.publisher, "flow": one.flow, "backfill": backfill}


def _print_changed(
    application: str, what: str, after: Sequence[FlowBackfill], notes: Sequence[str], made: bool
) -> None:
    print_json(
        {
            "application": application,
            "what": what,
            "changed": made,
            "flows": [_flow_object(one) for one in after],
            "notes": list(notes),
        }
    )


def _flow_row(status: admin_pb2.BackfillStatus) -> Sequence[str]:
    running = not has_ended(status)
    return (
        str(status.generation),
        f"{status.state} ({mode})" if (mode := mode_of(status)) else status.state,
        f"{status.rows:,}",
        f"{status.share:.0%}" if status.HasField("share") else "-",
        f"{status.rows_per_s:,.0f}" if running else "-",
        span(status.left_s) if running and status.HasField("left_s") else "-",
        status.who,
        (f"paused by {status.paused}" if status.paused else status.waits.text) if running else "",
    )


def _together(one: admin_pb2.BackfillTable, other: admin_pb2.BackfillTable) -> admin_pb2.BackfillTable:
    """The same table of two shards."""
    both = admin_pb2.BackfillTable()
    both.CopyFrom(one)
    if one.HasField("rows_estimate") and other.HasField("rows_estimate"):
        both.rows_estimate = one.rows_estimate + other.rows_estimate
    return both


def _table_row(table: admin_pb2.BackfillTable) -> Sequence[str]:
    return table.table, table.state, f"{table.rows:,}", _estimate(table)


def _estimate(table: admin_pb2.BackfillTable) -> str:
    return f"{table.rows_estimate:,}" if table.HasField("rows_estimate") else "-"


def _refusal(table: admin_pb2.BackfillTable) -> str:
    return "refused" if table.state == "refused" else ""


def _state(one: FlowBackfill) -> str:
    status = one.status
    if status is None or not status.generation:
        return "none"
    mode = mode_of(status)
    return f"{status.state}, generation {status.generation}{f' ({mode})' if mode else ''}"
