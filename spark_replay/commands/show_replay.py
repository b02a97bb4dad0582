"""The output of ``wormholectl replay``: a plan, the progress, and the result of each flow; for people or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.problem import Problem
from wormholectl.show.printer import print_json, print_table, print_text, size, span

if TYPE_CHECKING:
    from spark_replay.replay.estimate import Estimate
    from spark_replay.replay.flow_plans import FlowPlan
    from spark_replay.replay.progress import ReplayProgress
    from spark_replay.replay.request import FlowReport
    from wormhole.model.errors import WormholeError

__all__ = ["Teller", "bar", "show_cancelled", "show_plan", "show_reports"]

_WIDTH: Final = 24
_LINE_EVERY_S: Final = 10.0
# The throughput of one task, which reads files and sends bodies. On a core of a small virtual machine 500,000 updates
# of 100 bytes take 1.2 s, and 40,000 of 2.5 KB take 1.6 s. Files are compressed, so a time computed from their bytes is
# a lower limit.
_UPDATES_PER_S, _BYTES_PER_S = 400_000, 60 << 20


class Teller:
    """Shows progress on standard error: as a bar in a terminal, elsewhere as a line from time to time. For programs it
    writes objects to standard output.
    """

    def __init__(self, replay: str, *, as_json: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        self._id = replay
        self._as_json = as_json
        self._clock = clock
        self._drawn = 0
        self._line_at = 0.0
        self._bar = sys.stderr.isatty() and not as_json

    def says(self, text: str) -> None:
        """Show a line for people."""
        self._clear()
        print_text(text, error=True)

    def moves(self, progress: ReplayProgress) -> None:
        """Show the progress."""
        if self._as_json:
            print_json({"replay": self._id, "progress": _progress_object(progress)})
            return
        text = bar(progress)
        if self._bar:
            sys.stderr.write(f"\r{text:<{self._drawn}}")
            sys.stderr.flush()
            self._drawn = len(text)
        elif self._clock.monotonic() >= self._line_at:
            self._line_at = self._clock.monotonic() + _LINE_EVERY_S
            print_text(text, error=True)

    def close(self) -> None:
        """End the line of the bar, which stays visible."""
        if self._drawn:
            print_text(error=True)
        self._drawn = 0

    def _clear(self) -> None:
        if self._drawn:
            sys.stderr.write(f"\r{'':<{self._drawn}}\r")
        self._drawn = 0


def bar(progress: ReplayProgress) -> str:
    """The progress in one line: its share, its rates and the time left."""
    filled = int(progress.share * _WIDTH)
    left = "" if progress.left_s is None or progress.share >= 1 else f"  {span(progress.left_s)} left"
    finished, flows = progress.flows
    waiting = f", {progress.waiting} waiting" if progress.waiting else ""
    return (
        f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {progress.share:4.0%}  {progress.updates:,} updates  "
        f"{progress.updates_per_s:,.0f}/s  {size(progress.bytes_per_s)}/s{left}  {finished} of {flows} flows done, "
        f"{progress.pushing} pushing{waiting}"
    )


def show_plan(
    plans: Sequence[FlowPlan],
    estimates: Mapping[str, Estimate],
    slots: int,
    rate: float,
    no_subscriber: WormholeError | None = None,
    *,
    as_json: bool,
) -> None:
    """Show the result of a dry run. ``slots``: tasks at one time. ``rate``: bytes per second of all tasks together; 0:
    no limit. ``no_subscriber``: the error if no subscriber is connected.
    """
    rows, objects = [], []
    for one in plans:
        counted = estimates[one.shard]
        rows.append(
            (
                one.flow,
                str(one.range.begin.order),
                str(one.range.until.order),
                f"{counted.updates:,}",
                size(counted.bytes),
                f"{counted.keys:,}",
                f"{one.snapshot_rows:,}",
                one.mode,
                one.reason,
            )
        )
        objects.append(
            {
                "flow": one.flow,
                "from": str(one.range.begin.order),
                "until": str(one.range.until.order),
                "updates": counted.updates,
                "bytes": counted.bytes,
                "keys": counted.keys,
                "snapshot_rows": one.snapshot_rows,
                "mode": one.mode,
                "reason": one.reason,
            }
        )
    seconds = _seconds(plans, estimates, slots, rate)
    if as_json:
        problem = "" if no_subscriber is None else str(no_subscriber)
        print_json({"dry_run": True, "flows": objects, "seconds": round(seconds, 1), "problem": problem})
        return
    print_table(
        ("FLOW", "FROM", "UNTIL", "UPDATES", "SIZE", "KEYS", "SNAPSHOT", "MODE", "WHY"), rows, "nothing to replay"
    )
    print_text(
        f"about {span(seconds)} with {min(slots, len(plans) or 1)} tasks at a time, if the subscribers keep up; "
        "nothing is held and nothing was changed"
    )
    if no_subscriber is not None:
        print_text(f"not now: {no_subscriber.message}", f"  next: {no_subscriber.hint}")


def _seconds(plans: Sequence[FlowPlan], estimates: Mapping[str, Estimate], slots: int, rate: float) -> float:
    """The estimated duration: the maximum of the slowest flow, all flows by the tasks, and all bytes at the rate."""
    each = []
    for one in plans:
        counted = estimates[one.shard]
        updates = counted.keys if one.mode == "latest" else counted.updates
        bytes_ = counted.bytes * updates / counted.updates if counted.updates else 0.0
        updates += one.snapshot_rows
        each.append(max(updates / _UPDATES_PER_S, bytes_ / _BYTES_PER_S))
    bytes_all = sum(estimates[one.shard].bytes for one in plans)
    return max([sum(each) / slots, bytes_all / rate if rate else 0.0, *each], default=0.0)


def show_reports(replay: str, reports: Sequence[FlowReport], *, as_json: bool) -> None:
    """Show the result of each flow."""
    if as_json:
        print_json({"replay": replay, "flows": [_report_object(one) for one in reports]})
        return
    print_table(
        ("FLOW", "MODE", "UPDATES", "SIZE", "UP TO", "STATE"),
        [(one.flow, one.mode, f"{one.updates:,}", size(one.bytes), one.marker, one.state) for one in reports],
        "nothing was to be replayed",
    )
    for one in reports:
        if one.message:
            print_text(f"{one.flow}: {Problem(one.message, code=one.code)}")
            if one.hint:
                print_text(f"  next: {one.hint}")


def show_cancelled(replay: str, flows: Sequence[tuple[str, str]], *, as_json: bool) -> None:
    """Show the flows that were given back, with their present states."""
    if as_json:
        print_json({"replay": replay, "flows": [{"flow": f, "state": s} for f, s in flows]})
    else:
        print_table(("FLOW", "STATE"), flows, "")


def _progress_object(progress: ReplayProgress) -> dict[str, Any]:
    return {
        "done": progress.done,
        "all": progress.all,
        "updates": progress.updates,
        "bytes": progress.bytes,
        "updates_per_s": progress.updates_per_s,
        "bytes_per_s": progress.bytes_per_s,
        "left_s": progress.left_s,
        "flows": progress.flows,
        "pushing": progress.pushing,
        "waiting": progress.waiting,
        "share": progress.share,
    }


def _report_object(report: FlowReport) -> dict[str, Any]:
    return {
        "flow": report.flow,
        "mode": report.mode,
        "handed_over": report.handed_over,
        "state": report.state,
        "marker": report.marker,
        "updates": report.updates,
        "bytes": report.bytes,
        "message": report.message,
        "hint": report.hint,
        "code": report.code or None,
    }
