"""Shows backfills of flows: tables and notes for people, JSON objects for programs, and a progress line."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from wormhole.admin.admin_service import Answer
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.problem import Problem
from wormhole.wire.backfills import has_ended, refused_tables
from wormhole.wire.problems import problem_from
from wormhole.wire.v1 import admin_pb2
from wormhole.wire.verification_status import are_equal, has_no_table, is_settled, verifies
from wormholectl.show.columns import FIGURE, ShownColumn, ShownTable, given
from wormholectl.show.lists import problem_object, unreachable_objects
from wormholectl.show.printer import (
    counted,
    next_step_lines,
    print_json,
    print_notes,
    print_progress,
    print_table,
    print_text,
    print_warnings,
    size,
    span,
)
from wormholectl.show.verifications import VERIFIED, mode_of, show_verified

__all__ = [
    "BACKFILL",
    "ProgressLine",
    "ReportedBackfill",
    "are_complete",
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
class ReportedBackfill:
    """The backfill of one flow, as its publisher reports it. ``status``: ``None`` if no backfill was ever requested."""

    publisher: str
    flow: str
    status: admin_pb2.BackfillStatus | None


def are_complete(statuses: Collection[admin_pb2.BackfillStatus]) -> bool:
    """Whether the rows of every requested table were sent. For verifications, whether no difference is left."""
    compared = [one for one in statuses if verifies(one)]
    sent = (one.state == "done" and not refused_tables(one) for one in statuses if not verifies(one))
    return all(sent) and (not compared or are_equal(compared))


def share_of(statuses: Iterable[admin_pb2.BackfillStatus]) -> float | None:
    """The fraction of all rows that is sent, 0 to 1; ``None`` if the servers do not estimate the number of rows."""
    shares = [1.0 if one.state == "done" else one.share if one.HasField("share") else None for one in statuses]
    known = [one for one in shares if one is not None]
    return sum(known) / len(known) if known and len(known) == len(shares) else None


def progress_line(backfills: Sequence[ReportedBackfill]) -> str:
    """The progress line: fraction, rows, speed, time left, and why the backfill waits."""
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


class ProgressLine:
    """Prints the progress line on standard error while backfills run. A terminal shows it in place; other outputs get a
    line from time to time. Programs get JSON objects on standard output.
    """

    def __init__(self, application: str, *, as_json: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        self._application = application
        self._as_json = as_json
        self._clock = clock
        self._line_at = 0.0
        self._problems: Sequence[str] = ()

    def show(self, backfills: Sequence[ReportedBackfill], problems: Sequence[str]) -> None:
        """Show the progress. ``problems``: the problems of publishers that do not answer; each is shown once."""
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


def show_backfills(backfills: Sequence[ReportedBackfill], silent: Sequence[Answer], as_json: bool) -> None:
    """Print each flow, its tables, and the next steps. ``silent``: publishers that do not answer."""
    if as_json:
        print_json({"flows": list(map(_flow_object, backfills)), "unreachable": unreachable_objects(silent)})
        return
    known = [(one.flow, one.status) for one in backfills if one.status is not None]
    rows = [(flow, *BACKFILL.row(status)) for flow, status in known]
    empty = "no flow has a backfill: `wormholectl backfill start APP` begins one"
    print_table(("FLOW", *BACKFILL.titles), rows, empty)
    tables = [(flow, *_PROGRESS.row(table)) for flow, status in known for table in status.progress]
    if tables:
        print_text("")
        print_table(("FLOW", *_PROGRESS.titles), tables, "")
    if rows:
        print_text("", "SHARE, TIME LEFT and TABLE HOLDS follow from the server's estimate of the rows of a table.")
    for line in next_steps(status for _, status in known):
        print_text(line)
    show_verified(known)


def next_steps(statuses: Iterable[admin_pb2.BackfillStatus]) -> list[str]:
    """Why backfills wait, and which tables cannot be read. Each reason is listed once, with its next step."""
    found: dict[Problem, dict[str, None]] = {}
    for status in statuses:
        if not has_ended(status) and status.waits.text:
            found.setdefault(problem_from(status.waits), {})["it waits"] = None
        for table in refused_tables(status):
            refused = problem_from(table.refused)
            found.setdefault(refused, {})[f"{table.table} is refused"] = None
    return list(_problem_lines(found))


def _problem_lines(found: dict[Problem, dict[str, None]]) -> Iterator[str]:
    for problem, names in found.items():
        yield f"{', '.join(names)}: {problem.text}"
        if problem.hint:
            yield from (f"  {line}" for line in next_step_lines(problem.hint))


def show_planned(application: str, planned: Sequence[ReportedBackfill], notes: Sequence[str], as_json: bool) -> None:
    """Print the preview of a start: the tables of each log, with the server's estimate of their rows, and the flows."""
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
    rows = [
        (name, _ESTIMATE.cell(table), "refused" if table.state == "refused" else "", publisher)
        for (publisher, name), table in tables.items()
    ]
    print_table(("TABLE", "ABOUT ROWS", "", "PUBLISHER"), rows, "which tables there are is not known yet")
    wanted = [table for table in tables.values() if table.state != "refused"]
    estimates = [table.rows_estimate for table in wanted if table.HasField("rows_estimate")]
    known = len(estimates) == len(wanted)
    total = f"about {counted(sum(estimates), 'row')}, by the server's estimate" if estimates and known else "rows"
    print_text(
        f"{counted(len(planned), 'flow')} of {application} would {'compare' if compared else 'receive'} {total}, of "
        f"{counted(len(wanted), 'table')}; changes go on meanwhile"
    )
    for line in next_steps(one.status for one in planned if one.status is not None):
        print_text(line)
    print_notes(notes)


def show_changed(
    application: str,
    what: str,
    changed: Sequence[tuple[ReportedBackfill, ReportedBackfill]],
    notes: Sequence[str],
    *,
    made: bool,
    as_json: bool,
) -> None:
    """Print the effect of a change. ``changed``: each backfill before and after; ``made``: false for a preview."""
    if as_json:
        _print_changed(application, what, [after for _, after in changed], notes, made=made)
        return
    rows = [(after.flow, _state(before), _state(after)) for before, after in changed]
    print_text(f"backfill of {application} {'was changed' if made else 'would change'}:")
    print_table(("FLOW", "BEFORE", "AFTER"), rows, "")
    print_notes(notes)


_ESTIMATE: Final[ShownColumn[admin_pb2.BackfillTable]] = ShownColumn(
    "TABLE HOLDS", "rows_estimate", lambda one: given(one, "rows_estimate"), FIGURE
)
_PROGRESS: Final = ShownTable[admin_pb2.BackfillTable](
    ShownColumn("TABLE", "table", lambda one: one.table),
    ShownColumn("STATE", "state", lambda one: one.state),
    ShownColumn("ROWS SENT", "rows", lambda one: one.rows, FIGURE),
    _ESTIMATE,
    ShownColumn(None, "refused", lambda one: problem_object(one.refused) if one.state == "refused" else None),
)


def _waits(status: admin_pb2.BackfillStatus) -> str:
    waits = f"paused by {status.paused}" if status.paused else status.waits.text
    return "" if has_ended(status) else waits


def _equal(status: admin_pb2.BackfillStatus) -> bool | None:
    return is_settled(status) if verifies(status) and not has_no_table(status) else None


BACKFILL: Final = ShownTable[admin_pb2.BackfillStatus](
    ShownColumn("GENERATION", "generation", lambda one: one.generation),
    ShownColumn("STATE", None, lambda one: f"{one.state} ({mode})" if (mode := mode_of(one)) else one.state),
    ShownColumn(None, "state", lambda one: one.state),
    ShownColumn("ASKED BY", "who", lambda one: one.who),
    ShownColumn(None, "started_s", lambda one: one.started_s),
    ShownColumn(None, "tables", lambda one: list(one.tables)),
    ShownColumn(None, "where", lambda one: one.where or None),
    ShownColumn(None, "rate", lambda one: one.rate or None),
    ShownColumn(None, "paused", lambda one: one.paused or None),
    ShownColumn("WAITS FOR", None, _waits),
    ShownColumn(None, "waits", lambda one: problem_object(one.waits) if one.waits.text else None),
    ShownColumn(None, "table", lambda one: one.table or None),
    ShownColumn(None, "lost", lambda one: one.lost or None),
    ShownColumn("ROWS SENT", "rows", lambda one: one.rows, FIGURE),
    ShownColumn(None, "rows_estimate", lambda one: given(one, "rows_estimate")),
    ShownColumn("SHARE", "share", lambda one: given(one, "share"), "{:.0%}".format),
    ShownColumn("ROWS/S", None, lambda one: None if has_ended(one) else one.rows_per_s, "{:,.0f}".format),
    ShownColumn(None, "rows_per_s", lambda one: one.rows_per_s),
    ShownColumn(None, "bytes_per_s", lambda one: one.bytes_per_s),
    ShownColumn("TIME LEFT", None, lambda one: None if has_ended(one) else given(one, "left_s"), span),
    ShownColumn(None, "left_s", lambda one: given(one, "left_s")),
    ShownColumn(None, "progress", lambda one: _PROGRESS.objects(one.progress)),
    ShownColumn(None, "verify", mode_of),
    ShownColumn(None, "equal", _equal),
    ShownColumn(None, "verified", lambda one: VERIFIED.objects(one.verified)),
    titles=("GENERATION", "STATE", "ROWS SENT", "SHARE", "ROWS/S", "TIME LEFT", "ASKED BY", "WAITS FOR"),
)
"""The fields of a backfill. In JSON, it is a ``flow-backfill`` of docs/cli-schema.json."""


def _flow_object(one: ReportedBackfill) -> dict[str, Any]:
    backfill = None if one.status is None else BACKFILL.object(one.status)
    return {"publisher": one.publisher, "flow": one.flow, "backfill": backfill}


def _print_changed(
    application: str, what: str, after: Sequence[ReportedBackfill], notes: Sequence[str], made: bool
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


def _together(one: admin_pb2.BackfillTable, other: admin_pb2.BackfillTable) -> admin_pb2.BackfillTable:
    """The sum of the same table of two shards."""
    both = admin_pb2.BackfillTable()
    both.CopyFrom(one)
    if one.HasField("rows_estimate") and other.HasField("rows_estimate"):
        both.rows_estimate = one.rows_estimate + other.rows_estimate
    return both


def _state(one: ReportedBackfill) -> str:
    status = one.status
    if status is None or not status.generation:
        return "none"
    mode = mode_of(status)
    return f"{status.state}, generation {status.generation}{f' ({mode})' if mode else ''}"
